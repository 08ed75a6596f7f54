"use strict";
// What a model would predict at each layer (the lens), and which tokens and heads a prediction comes from (relevance).
const predictions = (() => {
  const { make, svgMake, one, all, remember } = page;
  /** @type {(context: Pick<ViewContext, "data" | "own">) => number} */
  const position = ({ data, own }) => {
    const tokens = data.tokens[data.last], given = /^\d+$/.test(own("at") || "") ? Number(own("at")) : -1;
    if (given >= 0 && given < tokens.length) return given;
    const written = tokens.map((_, index) => index).filter((index) => !tokens[index].special);
    return written.at(-1) ?? 0;
  };
  // A lens's candidates at one position and state, with bars.
  /** @type {(lens: Lens, at: number, state: number, choose?: (id: number) => void) => HTMLElement} */
  const candidates = (lens, at, state, choose) => {
    const list = make("ol", "", { class: "candidates" }), rows = lens.layers[lens.positions.indexOf(at)]?.[state] || [];
    for (const [id, share] of rows) {
      const item = make("li"), bar = make("span", "", { class: "share-bar", "aria-hidden": "true" }), text = lens.names[id] ?? String(id);
      bar.style.setProperty("--share", String(share));
      if (choose) {
        const button = make("button", text, { type: "button", class: "link", dir: "auto", title: "Which tokens does this come from?" });
        button.addEventListener("click", () => choose(id));
        item.append(button);
      } else item.append(make("span", text, { dir: "auto" }));
      item.append(bar, make("span", attention.percent(share), { class: "share" }));
      list.append(item);
    }
    return list;
  };
  /** @type {(state: number) => string} */
  const placeOf = (state) => (state ? `layer ${state}` : "layer 0, the input"); // as the report counts states
  /** @type {(context: ViewContext, error: any) => void} */
  const problem = (context, error) => { if (context.current()) { context.show(make("p", error.message, { class: "warnings" })); context.say(""); } };

  // ---- lens
  /** @type {(context: ViewContext) => Promise<void>} */
  const paintLens = async (context) => {
    const { data, say, hideSpecial, own, suffix } = context;
    let lens;
    try { lens = await data.ask("lens", {}); } catch (error) { problem(context, error); return; }
    if (!context.current()) return;
    const tokens = data.tokens[lens.stack], shown = attention.shownTokens(tokens, hideSpecial()).filter((index) => lens.positions.includes(index));
    const states = lens.layers[0]?.length || 0, table = make("table", "", { class: "lens", role: "grid", "aria-label": "Likeliest token by layer and position" });
    const head = table.createTHead().insertRow(), body = table.createTBody(), detail = make("div", "", { class: "node-lens" });
    head.append(make("th", "layer", { scope: "col" }), ...shown.map((index) => make("th", tokens[index].text, { scope: "col", dir: "auto", ...(tokens[index].special ? { class: "soft" } : {}) })));
    for (let state = states - 1; state >= 0; state--) {
      const row = body.insertRow();
      row.append(make("th", String(state), { scope: "row" }));
      for (const index of shown) {
        const [id, share] = lens.layers[lens.positions.indexOf(index)][state][0], text = lens.names[id] ?? String(id);
        const button = make("button", text, { type: "button", dir: "auto", "data-state": state, "data-at": index, tabindex: -1, "aria-label": `${placeOf(state)}, at ${tokens[index].text}: ${text}, ${attention.percent(share)}`, title: `${text} ${attention.percent(share)}` });
        button.style.setProperty("--v", share);
        row.insertCell().append(button);
      }
    }
    const at = () => { const given = position(context); return shown.includes(given) ? given : shown[0] ?? 0; };
    const state = () => (/^\d+$/.test(own("state") || "") && Number(own("state")) < states ? Number(own("state")) : states - 1);
    const tell = () => {
      for (const button of all("button", body)) {
        const current = Number(button.dataset.at) === at() && Number(button.dataset.state) === state();
        button.tabIndex = current ? 0 : -1;
        if (current) button.setAttribute("aria-current", "true"); else button.removeAttribute("aria-current");
      }
      if (!shown.length) { say("All tokens are special tokens, which are hidden."); return; }
      const rows = lens.layers[lens.positions.indexOf(at())], top = (which) => rows[which][0][0], final = top(states - 1);
      let since = states - 1;
      while (since > 0 && top(since - 1) === final) since--;
      detail.replaceChildren(make("h4", `At “${tokens[at()].text}”, ${placeOf(state())}`, { dir: "auto" }), candidates(lens, at(), state(), (id) => context.change({ show: "relevance", ["at" + suffix]: String(at()), ["target" + suffix]: String(id), ["against" + suffix]: "" })));
      say(`At ${attention.quoted(tokens[at()])} the model predicts “\u2068${lens.names[final]}\u2069” (${attention.percent(rows[states - 1][0][1])}); it is the top token ${since === states - 1 ? "only in the last layer" : since ? `from layer ${since} on` : "from the start"}.`);
    };
    const choose = (button) => { remember({ ["at" + suffix]: button.dataset.at, ["state" + suffix]: button.dataset.state }); tell(); data.chosen?.(); };
    body.addEventListener("click", (event) => { const button = event.target?.closest("button"); if (button) choose(button); });
    body.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key], from = event.target?.closest("button");
      if (!step || !from) return;
      event.preventDefault();
      const to = one(`button[data-state="${Number(from.dataset.state) + step[0]}"][data-at="${shown[shown.indexOf(Number(from.dataset.at)) + step[1]]}"]`, body);
      if (to) { choose(to); to.focus(); }
    });
    const scroll = make("div", "", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Lens, scrolls sideways" });
    scroll.append(table);
    context.show(scroll, detail);
    context.draw(() => drawLens(lens, shown, tokens));
    tell();
  };
  /** @type {(lens: Lens, shown: number[], tokens: Token[]) => string} */
  const drawLens = (lens, shown, tokens) => {
    const group = svgMake("g", {}), [cell, line] = [74, 22], states = lens.layers[0]?.length || 0, colors = attention.paperRamp(false);
    const levels = (row, column) => Math.round(255 * Math.sqrt(lens.layers[lens.positions.indexOf(shown[column])][states - 1 - row][0][1]) * 0.6);
    const body = svgMake("g", { transform: "translate(40,30)" });
    body.append(...attention.cellPaths(states, shown.length, levels, [cell, line], colors));
    shown.forEach((index, column) => {
      group.append(attention.label(attention.fitted(tokens[index].text, cell - 6, 12), { x: 40 + cell * (column + 0.5), y: 18, "font-weight": "bold" }, 12, "middle"));
      for (let state = 0; state < states; state++) body.append(attention.label(attention.fitted(lens.names[lens.layers[lens.positions.indexOf(index)][state][0][0]] || "", cell - 6, 12), { x: cell * (column + 0.5), y: line * (states - 1 - state + 0.5) }, 12, "middle"));
    });
    for (let state = 0; state < states; state++) group.append(attention.label(String(state), { x: 34, y: 30 + line * (states - 1 - state + 0.5), fill: "var(--soft)" }, 12, "end"));
    group.append(body);
    return attention.drawingOf([{ group, width: 44 + cell * shown.length, height: 36 + line * states }], 1e5);
  };

  // ---- relevance
  const METHODS = { "gradient-x-input": "gradient × input", "cp-lrp": "CP-LRP", "attn-lrp": "AttnLRP", voita: "LRP (slow)", chefer: "attention × gradient", alti: "ALTI", rollout: "rollout" };
  /** @type {(context: ViewContext) => Promise<void>} */
  const paintRelevance = async (context) => {
    const { data, say, own, hideSpecial } = context, at = position(context), number = (name) => (/^\d+$/.test(own(name) || "") ? Number(own(name)) : undefined);
    const wanted = own("method") || "", method = Object.hasOwn(METHODS, wanted) ? wanted : data.predicts ? "gradient-x-input" : "alti";
    let found, lens = null;
    try {
      found = await data.ask("relevance", { position: at, target: number("target"), against: number("against"), method });
      if (data.predicts) lens = await data.ask("lens", { position: at }).catch(() => null);
    } catch (error) { problem(context, error); if (context.current()) context.stage.prepend(choices(context, at, method, null, null)); return; }
    if (!context.current()) return;
    const values = Object.entries(found.tokens), most = Math.max(...values.flatMap(([, row]) => row.map(Math.abs)), 1e-12);
    const pictures = values.map(([stack, row]) => bars(stack, data.tokens[stack], row, most, found.signed, hideSpecial(), values.length > 1));
    const box = make("div", "", { class: "relevance-bars" });
    box.append(...pictures);
    const heads = make("div", "", { class: "grids" });
    heads.append(...headGrids(context, found.heads, found.signed));
    context.show(choices(context, at, method, found, lens), box, ...(found.heads.length ? [make("h4", "Heads"), heads] : []));
    const all = values.flatMap(([stack, row]) => row.map((value, index) => [data.tokens[stack][index], value])).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 3);
    const what = found.target_name === undefined ? `What reaches ${attention.quoted(data.tokens[data.last][at])}` : `“\u2068${found.target_name}\u2069”${found.against_name === undefined ? "" : `, and not “\u2068${found.against_name}\u2069”,`} at ${attention.quoted(data.tokens[data.last][at])}`;
    const sum = values.reduce((total, [, row]) => total + row.reduce((a, value) => a + Math.abs(value), 0), 0) || 1;
    say(`${what} comes mostly from ${all.map(([token, value]) => `${attention.quoted(token)} (${value < 0 ? "against it, " : ""}${attention.percent(Math.abs(value) / sum)})`).join(", ")}.`);
    context.draw(() => attention.drawingOf(pictures.map((one) => attention.copied(one)), 1000));
  };
  /** @type {(context: ViewContext, at: number, method: string, found: RelevanceAnswer | null, lens: Lens | null) => HTMLElement} */
  const choices = (context, at, method, found, lens) => {
    const { data, suffix, change } = context, row = make("div", "", { class: "controls" });
    const select = (label, name, pairs, value) => {
      const box = make("label", `${label} `, { class: "seed" }), list = make("select", "", { dir: "auto", "data-choice": name });
      list.append(...pairs.map(([key, text]) => make("option", text, { value: key })));
      list.value = String(value);
      list.addEventListener("change", () => change({ [name + suffix]: list.value, ...(name === "at" ? { ["target" + suffix]: "", ["against" + suffix]: "" } : {}) }));
      box.append(list);
      row.append(box);
    };
    select(data.predicts ? "prediction at" : "vector of", "at", data.tokens[data.last].map((token, index) => [index, `${index + 1} ${token.text}`]), at);
    if (found?.target !== undefined && lens) {
      const rows = lens.layers[lens.positions.indexOf(at)].slice(-1)[0].map(([id, share]) => [id, `${lens.names[id]} ${attention.percent(share)}`]);
      if (!rows.some(([id]) => id === found.target)) rows.push([found.target, found.target_name ?? ""]);
      select("why", "target", rows, found.target);
      if (["gradient-x-input", "cp-lrp", "attn-lrp", "chefer"].includes(method)) select("and not", "against", [["", "–"], ...rows.filter(([id]) => id !== found.target)], found.against ?? "");
    }
    if (data.live || !found) select("by", "method", Object.entries(METHODS).filter(([name]) => data.predicts || name === "alti" || name === "rollout"), method);
    return row;
  };
  /** @type {(stack: string, tokens: Token[], values: number[], most: number, signed: boolean, hide: boolean, named: boolean) => SVGElement} */
  const bars = (stack, tokens, values, most, signed, hide, named) => {
    const shown = attention.shownTokens(tokens, hide), line = 20, room = Math.min(Math.max(...shown.map((index) => attention.measured(tokens[index].text, 13)), 30) + 12, 140), wide = 190, zero = signed ? room + wide / 2 : room;
    const svg = svgMake("svg", { width: room + wide + 60, height: 22 + line * shown.length, class: "bars", role: "img", "aria-label": `Relevance of ${stack} tokens`, "font-family": attention.FONT });
    svg.append(attention.label(named ? stack : "", { x: room, y: 10, fill: "var(--soft)" }, 12));
    shown.forEach((index, row) => {
      const long = (signed ? wide / 2 : wide) * Math.abs(values[index]) / most, y = 20 + line * row;
      svg.append(attention.label(attention.fitted(tokens[index].text, room - 10, 13), { x: room - 6, y: y + line / 2, ...(tokens[index].special ? { fill: "var(--soft)" } : {}) }, 13, "end"), svgMake("rect", { x: values[index] < 0 ? zero - long : zero, y: y + 3, width: long.toFixed(2), height: line - 6, rx: 2, fill: values[index] < 0 ? "var(--below)" : "var(--above)" }), attention.label(values[index].toPrecision(2).replace("-", "−"), { x: room + wide + 8, y: y + line / 2, fill: "var(--soft)" }, 12));
    });
    svg.append(svgMake("line", { x1: zero, x2: zero, y1: 18, y2: 22 + line * shown.length, stroke: "var(--control)" }));
    return svg;
  };
  // Numbers by layer and column as a grid of squares; `cell` names each square and says what choosing it does.
  /** @type {(of: ValueGrid) => HTMLElement} */
  const valueGrid = ({ caption, columns, rows, signed, most, wide, cell }) => {
    const table = make("table", "", { class: `heads${signed ? " signed" : ""}${wide ? " wide" : ""}` }), body = table.createTBody();
    table.createCaption().textContent = caption;
    table.style.setProperty("--heads", String(columns.length));
    if (wide) table.style.setProperty("--cell", wide);
    for (const { layer, values } of [...rows].sort((a, b) => b.layer - a.layer)) {
      const line = body.insertRow();
      line.append(make("th", String(layer), { scope: "row" }));
      values.forEach((value, column) => {
        const button = make("button", "", { type: "button", "data-layer": layer });
        if (value === null || value === undefined) button.classList.add("empty");
        else button.style.setProperty("--v", String((signed ? Math.sign(value) : 1) * Math.sqrt(Math.min(Math.abs(value) / most, 1))));
        cell(button, layer, column, value);
        line.insertCell().append(button);
      });
    }
    const foot = body.insertRow();
    foot.className = "numbers";
    foot.append(make("th", "layer"), ...columns.map((name) => make("td", wide === "3.4rem" ? attention.fitted(name, 50, 11) : name, { title: name, dir: "auto" })));
    return table;
  };
  // A grid of heads for each kind of attention, coloured by a number; a head opens when it is chosen.
  /** @type {(context: ViewContext, rows: HeadRow[], signed: boolean) => HTMLElement[]} */
  const headGrids = (context, rows, signed) => {
    const { data, suffix, change } = context, most = Math.max(...rows.flatMap((row) => row.heads.map((value) => Math.abs(value ?? 0))), 1e-12);
    return data.kinds.map((kind) => {
      const own = rows.filter((row) => row.stack === kind.stack && row.kind === kind.kind), widest = Math.max(...own.map((row) => row.heads.length));
      if (!own.length) return make("span");
      return valueGrid({
        caption: kind.label, columns: Array.from({ length: widest }, (_, number) => String(number)), rows: own.map((row) => ({ layer: row.layer, values: row.heads })), signed, most,
        cell: (button, layer, number, value) => {
          const shown = value === null || value === undefined ? "not yet" : value.toPrecision(2).replace("-", "−");
          for (const [name, text] of [["data-head", String(number)], ["aria-label", `${kind.label}, layer ${layer}, head ${number}: ${shown}; open`], ["title", `layer ${layer}, head ${number}: ${shown}`]]) button.setAttribute(name, text);
          button.addEventListener("click", () => change({ show: "head", ["kind" + suffix]: kind.id, ["layer" + suffix]: String(layer), ["head" + suffix]: String(number) }));
        },
      });
    });
  };
  furtherViews.lens = { label: "lens", there: (data) => data.predicts && (data.live || Boolean(data.answers?.lens)), paint: paintLens };
  furtherViews.relevance = { label: "relevance", there: (data) => Boolean(data.live || data.answers?.relevance?.length), paint: paintRelevance };
  return { candidates, headGrids, valueGrid, position };
})();
