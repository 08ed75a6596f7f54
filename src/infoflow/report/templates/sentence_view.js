"use strict";
// One sentence in one model: all heads, a head at a time, queries and keys, and the views of other files (route, lens,
// relevance, changes, swap). The file of `infoflow view` and the live explorer share it: `data` is what `view_payload` wrote,
// with `block(name)`, which returns bytes, and `ask(what, request)`, which fetches what is missing.
// The address keeps the state: #;show=…;kind=…;layer=…;head=…;with=3.5;map=…;token=q3;at=3;trace=0.9.2;least=0.04;special=hide;
// between=AB (of a pair of sentences: from the first to the second). Choices for a second model are kept under names that end in 1.
/** @type {Record<string, FurtherView>} */
const furtherViews = {}; // name → { label, there(data), paint(context) }
/** @type {(root: HTMLElement, first: ViewData, number?: number) => any} */
const sentenceView = (root, first, number = 0) => {
  const { all, one, make, svgMake, state, remember, saveSvg, check, choices } = page;
  const suffix = number ? String(number) : "";
  const MAPS = { attention: "attention", value: "value-weighted", before: "before", difference: "change" };
  const BETWEEN = { "": "all", AB: "A → B", BA: "B → A", AA: "A → A", BB: "B → B" }; // of a pair of sentences
  const MOST_HEADS = 8; // drawn in one picture: as many colours differ
  let data = first;

  // ---- the parts of the page
  const controls = make("div", "", { class: "controls" }), stage = make("section", "", { class: "stage-of-view", "aria-label": "Picture" });
  const status = make("p", "", { class: "answer", role: "status" }), downloads = make("p", "", { class: "downloads" });
  const id = (name) => name + suffix;
  stage.id = id("view");
  status.id = id("status");
  stage.append(status);
  downloads.append(make("button", "Figure (SVG)", { type: "button", class: "link", id: id("save") }));
  root.replaceChildren(controls, stage, downloads);
  const at = (name) => one(`[id="${id(name)}"]`, root);
  const radios = (name, label, buttons) => {
    const group = make("div", "", { class: "choice", role: "radiogroup", "aria-label": label, id: id(name) });
    group.append(...buttons);
    return group;
  };
  const select = (name, forViews) => {
    const label = make("label", `${name} `, { class: "seed", "data-for": forViews });
    label.append(make("select", "", { id: id(name), ...(name === "query" ? { dir: "auto" } : {}) }));
    return label;
  };
  const offered = () => {
    /** @type {string[][]} */
    const further = Object.entries(furtherViews).filter(([, view]) => view.there(data)).map(([name, view]) => [name, view.label]);
    const isRoute = (one) => one[0] === "route";
    return [["model", "all heads"], ...further.filter(isRoute), ["head", "one head"], ["products", "queries and keys"], ...further.filter((one) => !isRoute(one))];
  };
  const shape = () => JSON.stringify([offered(), data.kinds.map((one) => one.id), data.any_special, isPair()]);
  let builtFor = "";
  const buildControls = () => {
    builtFor = shape();
    controls.replaceChildren(radios("views", "View", offered().map(([name, text]) => make("button", text, { type: "button", role: "radio", "data-view": name }))));
    if (data.kinds.length > 1) controls.append(radios("kinds", "Attention", data.kinds.map((one) => make("button", one.label, { type: "button", role: "radio", "data-kind": one.id }))));
    controls.append(select("layer", "head products"), select("head", "head products"), select("query", "products"));
    const maps = radios("maps", "Lines and thumbnails show", []);
    maps.dataset.for = "head model";
    controls.append(maps);
    const further = make("div", "", { class: "choice heads-drawn", role: "group", "aria-label": "Heads drawn, each in its colour", id: id("with"), "data-for": "head" });
    controls.append(further);
    if (isPair()) {
      const between = radios("between", "Attention between sentences A and B", Object.entries(BETWEEN).map(([name, text]) => make("button", text, { type: "button", role: "radio", "data-between": name })));
      between.dataset.for = "head model";
      controls.append(between);
      choices(between, (button) => change({ between: button.dataset.between, ["token" + suffix]: "" }));
    }
    if (data.any_special) {
      const tick = make("label", " hide special tokens", { class: "tick" });
      tick.prepend(make("input", "", { type: "checkbox", id: id("special") }));
      controls.append(tick);
    }
    further.addEventListener("click", (event) => {
      const button = event.target?.closest("button"), number = Number(button?.dataset.with), others = drawnHeads().slice(1);
      if (!button) return;
      change({ ["with" + suffix]: (others.includes(number) ? others.filter((one) => one !== number) : [...others, number]).join(".") });
      one(`[data-with="${number}"]`, at("with"))?.focus();
    });
    choices(at("views"), (button) => change({ show: button.dataset.view }));
    if (at("kinds")) choices(at("kinds"), (button) => change({ ["kind" + suffix]: button.dataset.kind, ["token" + suffix]: "" }));
    choices(at("maps"), (button) => { change({ map: button.dataset.map }); one("[aria-checked=true]", at("maps"))?.focus(); });
    at("layer").addEventListener("change", (event) => change({ ["layer" + suffix]: event.target.value }));
    at("head").addEventListener("change", (event) => change({ ["head" + suffix]: event.target.value }));
    at("query").addEventListener("change", (event) => change({ ["token" + suffix]: `q${event.target.value}` }));
    at("special")?.addEventListener("change", (event) => change({ special: event.target.checked ? "hide" : "" }));
  };

  // ---- the choices in the address, as far as they are valid here
  const own = (name) => state[name + suffix];
  const kind = () => data.kinds.find((one) => one.id === own("kind")) || data.kinds[0];
  const layerOf = (chosen) => chosen.layers.find((one) => String(one.layer) === own("layer")) || chosen.layers[0];
  const layer = () => layerOf(kind());
  const head = () => (/^\d+$/.test(own("head") || "") && Number(own("head")) < layer().heads ? Number(own("head")) : 0);
  // If the address names no view: the view of the head that it names, or all heads.
  const opening = () => data.opens || (own("head") || own("layer") || own("token") ? "head" : "model");
  const view = () => (offered().some(([name]) => name === state.show) ? state.show : opening());
  const mapsOf = () => ["attention", "value", ...(data.before ? ["before", "difference"] : [])];
  const shownMap = () => (mapsOf().includes(state.map) ? state.map : "attention");
  const isPair = () => data.tokens[data.last].some((token) => token.segment === 1);
  const between = () => (isPair() && Object.hasOwn(BETWEEN, state.between || "") ? state.between || "" : "");
  // For queries and keys: the sentence to which the picture is limited.
  const segments = () => (between() && ["head", "model"].includes(view()) ? [...between()].map((letter) => "AB".indexOf(letter)) : [null, null]);
  const shownQueries = () => attention.shownTokens(queries(), hideSpecial(), segments()[0]);
  const shownKeys = () => attention.shownTokens(keys(), hideSpecial(), segments()[1]);
  // The heads that are drawn: the chosen one, and others of its layer.
  const drawnHeads = () => [head(), ...new Set((own("with") || "").split(".").filter((one) => /^\d+$/.test(one)).map(Number).filter((one) => one < layer().heads && one !== head()))].slice(0, MOST_HEADS);
  const hideSpecial = () => state.special === "hide";
  const queries = () => data.tokens[kind().stack];
  const keys = () => data.tokens[kind().keys];
  const token = () => /^([qk])(\d+)$/.exec(own("token") || "");
  const query = () => {
    const shown = shownQueries(), chosen = token();
    return chosen?.[1] === "q" && shown.includes(Number(chosen[2])) ? Number(chosen[2]) : shown[0] ?? 0;
  };

  // ---- numbers
  const block = (name) => data.block(name);
  const address = (chosen, of) => `${chosen.id}/${of.layer}`;
  const sharesOf = async (chosen, of, number, name) => {
    const size = data.tokens[chosen.stack].length * data.tokens[chosen.keys].length;
    if (name === "before" && data.before) return attention.weightsOf((await data.before.block(`${address(chosen, of)}/weights`)).subarray(number * size, (number + 1) * size));
    if (name === "difference") return attention.signedOf((await block(`${address(chosen, of)}/difference`)).subarray(number * size, (number + 1) * size));
    const weights = attention.weightsOf((await block(`${address(chosen, of)}/weights`)).subarray(number * size, (number + 1) * size));
    return name === "attention" ? weights : attention.valueWeighted(weights, await normsOf(chosen, of, number));
  };
  const normsOf = async (chosen, of, number) => {
    const bytes = await block(`${address(chosen, of)}/norms`), columns = data.tokens[chosen.keys].length;
    return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4).subarray(number * columns, (number + 1) * columns);
  };
  // Signed bytes times a scale per head.
  const vectorsOf = async (chosen, of, name, number) => {
    const bytes = await block(`${address(chosen, of)}/${name}`), tokens = data.tokens[name === "query" ? chosen.stack : chosen.keys].length;
    const size = tokens * of.width, signed = new Int8Array(bytes.buffer, bytes.byteOffset, bytes.length), scale = of.scales[name][number] / 127;
    return Float32Array.from(signed.subarray(number * size, (number + 1) * size), (byte) => byte * scale);
  };

  const place = () => `${kind().label}, layer ${layer().layer}, head ${head()}`;
  /** @type {() => string | Promise<string>} */
  let drawing = () => "";
  let turn = 0;
  const say = (text) => { if (status.textContent !== text) status.textContent = text; };

  const scale = () => {
    const box = make("div", "", { class: "scale roots", role: "img", "aria-label": "Colours from 0 to 100%; the middle is 25%" });
    box.append(make("span", "0"), make("span", "", { class: "ramp" }), make("span", "100%"), make("span", "25%", { class: "middle" }));
    return box;
  };

  // ---- one head: its lines, and its maps side by side
  /** @type {any} */
  let headView = null;
  const buildHead = () => {
    const box = make("div", "", { class: "lines-scroll" }), row = make("div", "", { class: "maps-row" });
    stage.replaceChildren(box, status, row, scale());
    const view = { box, row, maps: /** @type {any[]} */ ([]), summary: "", lines: /** @type {any} */ (null) };
    view.lines = attention.lines(box, (text, active, pinned, chosen) => {
      say(text || view.summary);
      for (const map of view.maps) map.markRow(active?.side === 0 ? active.index : -1);
      if (chosen) { remember({ ["token" + suffix]: pinned ? `${pinned.side ? "k" : "q"}${pinned.index}` : "" }); data.chosen?.(); }
    });
    return view;
  };
  const cell = (at) => {
    const { maps, lines } = headView;
    lines.activate(at && { side: 0, index: at.query });
    if (!at) return;
    const shares = maps.map((map) => `${map.name} ${attention.percent(map.share(at.query, at.key))}`);
    say(`${attention.quoted(queries()[at.query])} to ${attention.quoted(keys()[at.key])}: ${shares.join(", ")}`);
  };
  const paintHead = async () => {
    const mine = ++turn, chosen = kind(), of = layer(), number = head(), names = mapsOf(), drawn = drawnHeads();
    const inLines = shownMap() === "difference" ? "attention" : shownMap();
    const shares = await Promise.all(names.map((name) => sharesOf(chosen, of, number, name)));
    const others = await Promise.all(drawn.slice(1).map((one) => sharesOf(chosen, of, one, inLines)));
    if (mine !== turn) return;
    headView ??= buildHead();
    const { lines, row } = headView;
    const common = { queries: queries(), keys: keys(), hideSpecial: hideSpecial(), segments: segments() };
    lines.show({ ...common, titles: chosen.kind === "cross" ? ["decoder", "encoder"] : ["looks", "is looked at"], name: `${drawn.length > 1 ? `${kind().label}, layer ${layer().layer}, heads ${drawn.join(", ")}` : place()}: lines between tokens` });
    const pinned = token();
    lines.pinTo(pinned ? Number(pinned[1] === "k") : -1, pinned ? Number(pinned[2]) : -1);
    if (headView.maps.length !== names.length) {
      headView.maps = names.map((name) => Object.assign(attention.map(make("div"), cell), { name: MAPS[name] }));
      row.replaceChildren(...headView.maps.map((map) => map.host));
      attention.scrollTogether(headView.maps.map((map) => map.scroll));
    }
    names.forEach((name, index) => headView.maps[index].show({ ...common, title: MAPS[name], shares: shares[index], signed: name === "difference" }));
    headView.summary = summary(shares[0]);
    const own = shares[names.indexOf(inLines)];
    lines.weigh(others.length ? [own, ...others].map((shares, which) => ({ shares, color: `var(--series-${which})`, name: `head ${drawn[which]}` })) : own, keys().length);
    drawing = () => attention.drawingOf([attention.copied(lines.svg), ...headView.maps.map((map) => map.drawing())], 1100);
  };
  // How sharp the head is, and where it mostly looks.
  const summary = (weights) => {
    const rows = shownQueries(), columns = shownKeys(), offsets = new Map(), tokens = new Map();
    let sum = 0;
    for (const i of rows) {
      let best = columns[0];
      for (const j of columns) if (weights[i * keys().length + j] > weights[i * keys().length + best]) best = j;
      sum += weights[i * keys().length + best] || 0;
      offsets.set(best - i, (offsets.get(best - i) || 0) + 1);
      tokens.set(best, (tokens.get(best) || 0) + 1);
    }
    if (!rows.length || !columns.length) return "All tokens are hidden.";
    const most = (counts) => [...counts].sort((a, b) => b[1] - a[1])[0];
    const [offset, often] = most(offsets), [target, times] = most(tokens);
    const neighbour = { "-1": "the token before", 0: "the token itself", 1: "the token after" }[offset];
    const where = kind().kind === "self" && neighbour && often >= times ? `${neighbour} (${often} of ${rows.length} tokens)` : `${attention.quoted(keys()[target])} (${times} of ${rows.length} tokens)`;
    return `${place()}: a token's strongest weight is ${attention.percent(sum / rows.length)} on average, most often on ${where}.`.replace(/^./, (first) => first.toUpperCase());
  };

  // ---- all heads
  const THUMB = 64;
  let watcher = null;
  const paintModel = () => {
    turn++;
    const chosen = kind(), rows = shownQueries(), columns = shownKeys();
    const table = make("table", "", { class: "thumbs", role: "grid", "aria-label": `${chosen.label}: layers by heads` }), body = table.createTBody();
    const most = Math.max(...chosen.layers.map((of) => of.heads));
    table.style.setProperty("--heads", String(most));
    watcher?.disconnect();
    watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) { watcher.unobserve(entry.target); fill(entry.target); }
    }, { rootMargin: "300px" });
    const fill = async (line) => {
      const of = chosen.layers.find((one) => String(one.layer) === line.dataset.layer), name = shownMap();
      const colors = attention.ramp(attention.screenColors(), name === "difference");
      for (const canvas of all("canvas", line)) {
        const { cells, height, across } = await thumbnail(chosen, of, Number(canvas.dataset.head), name, rows, columns);
        if (!canvas.isConnected) return;
        attention.paintCells(canvas, height, across, (row, column) => cells[row * across + column], colors);
      }
    };
    for (const of of [...chosen.layers].reverse()) {
      const line = body.insertRow();
      line.dataset.layer = String(of.layer);
      line.append(make("th", String(of.layer), { scope: "row" }));
      for (let number = 0; number < of.heads; number++) {
        const current = of.layer === layer().layer && number === head();
        const button = make("button", "", { type: "button", "data-layer": of.layer, "data-head": number, tabindex: current ? 0 : -1, "aria-label": `layer ${of.layer}, head ${number}: open`, title: `layer ${of.layer}, head ${number}` });
        if (current) button.setAttribute("aria-current", "true");
        const canvas = make("canvas", "", { "data-head": number });
        canvas.style.aspectRatio = String(Math.min(Math.max(columns.length / Math.max(rows.length, 1), 0.5), 2));
        button.append(canvas);
        line.insertCell().append(button);
      }
    }
    const foot = body.insertRow();
    foot.className = "numbers";
    foot.append(make("th", "layer"));
    for (let number = 0; number < most; number++) foot.insertCell().textContent = String(number);
    const scroll = make("div", "", { class: "scroll" });
    scroll.append(table);
    headView = null;
    stage.replaceChildren(tellingHeads(chosen), scroll, scale(), status);
    for (const line of all("tr[data-layer]", table)) watcher.observe(line);
    table.addEventListener("click", (event) => {
      const button = event.target?.closest("button");
      if (!button) return;
      open(button);
    });
    table.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key], from = event.target?.closest("button");
      if (!step || !from) return;
      event.preventDefault();
      const to = one(`button[data-layer="${Number(from.dataset.layer) + step[0]}"][data-head="${Number(from.dataset.head) + step[1]}"]`, table);
      if (!to) return;
      from.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
    });
    say(`${chosen.label}: ${chosen.layers.length} layers of ${most} heads; choose one to open it.`.replace(/^./, (first) => first.toUpperCase()));
    drawing = async () => drawModel(chosen, rows, columns);
  };
  const thumbnail = async (chosen, of, number, name, rows, columns) => {
    const width = data.tokens[chosen.keys].length, size = data.tokens[chosen.stack].length * width;
    if (name === "attention") return attention.reduced(await block(`${address(chosen, of)}/weights`), number * size, rows, columns, width, THUMB);
    const shares = await sharesOf(chosen, of, number, name);
    if (name === "difference") return attention.reducedSigned(shares, rows, columns, width, THUMB);
    return attention.reduced(Uint8Array.from(shares, (share) => Math.round(255 * Math.sqrt(share))), 0, rows, columns, width, THUMB);
  };
  const drawModel = async (chosen, rows, columns) => {
    const group = svgMake("g", {}), side = 60, most = Math.max(...chosen.layers.map((of) => of.heads)), colors = attention.paperRamp(shownMap() === "difference");
    const reversed = [...chosen.layers].reverse();
    for (const [line, of] of reversed.entries()) {
      group.append(attention.label(String(of.layer), { x: 16, y: 20 + line * (side + 4) + side / 2, fill: "var(--soft)" }, 12, "end"));
      for (let number = 0; number < of.heads; number++) {
        const { cells, height, across } = await thumbnail(chosen, of, number, shownMap(), rows, columns);
        const part = svgMake("g", { transform: `translate(${22 + number * (side + 4)},${20 + line * (side + 4)})` });
        part.append(...attention.cellPaths(height, across, (row, column) => cells[row * across + column], [side / across, side / height], colors));
        group.append(part);
      }
    }
    for (let number = 0; number < most; number++) group.append(attention.label(String(number), { x: 22 + number * (side + 4) + side / 2, y: 28 + reversed.length * (side + 4), fill: "var(--soft)" }, 12, "middle"));
    group.append(attention.label(`${chosen.label}: layers by heads`, { x: 0, y: 8 }, 13));
    return attention.drawingOf([{ group, width: 22 + most * (side + 4), height: 40 + reversed.length * (side + 4) }], 1e5);
  };

  // ---- heads with a clear habit, named, above all heads
  const tellingHeads = (chosen) => {
    const box = make("p", "", { class: "telling-heads" });
    if (!chosen.telling.length) return box;
    box.append(make("span", "In this sentence: "));
    for (const one of chosen.telling) {
      const button = make("button", "", { type: "button", class: "link", "data-layer": one.layer, "data-head": one.head });
      button.append(make("b", `${one.layer}.${one.head}`), make("bdi", ` ${one.text}`));
      button.addEventListener("click", () => open(button));
      box.append(button);
    }
    return box;
  };

  // ---- queries and keys
  const LINE = 20;
  const paintProducts = async () => {
    const mine = ++turn, chosen = kind(), of = layer(), number = head(), i = query(), group = Math.floor(number * of.groups / of.heads);
    const [queryVectors, keyVectors, weights] = await Promise.all([vectorsOf(chosen, of, "query", number), vectorsOf(chosen, of, "key", group), sharesOf(chosen, of, number, "attention")]);
    if (mine !== turn) return;
    headView = null;
    const own = queryVectors.subarray(i * of.width, (i + 1) * of.width), columns = attention.shownTokens(keys(), hideSpecial());
    const key = columns.map((j) => keyVectors.subarray(j * of.width, (j + 1) * of.width));
    const products = key.map((vector) => vector.map((value, at) => value * own[at] * of.scaling));
    const scores = products.map((vector) => vector.reduce((sum, value) => sum + value, 0)), shares = columns.map((j) => weights[i * keys().length + j]);
    const hidden = columns.map((j) => chosen.causal && j > i);
    const grid = make("div", "", { class: "products", role: "img", "aria-label": `${place()}: query of ${attention.quoted(queries()[i])} times the key of each token` });
    const strips = [[own], key, products].map((vectors) => strip(vectors));
    const names = svgMake("svg", { "font-family": attention.FONT }), bars = svgMake("svg", { "font-family": attention.FONT });
    const room = Math.min(Math.max(...columns.map((j) => attention.measured(keys()[j].text, 13)), 30) + 10, 110), wide = 118;
    const draw = (svg, width, children) => { svg.setAttribute("width", width); svg.setAttribute("height", columns.length * LINE); svg.append(...children); };
    draw(names, room, columns.map((j, row) => attention.label(attention.fitted(keys()[j].text, room - 8, 13), { x: room - 5, y: (row + 0.5) * LINE, ...(hidden[row] ? { "fill-opacity": 0.4 } : {}) }, 13, "end")));
    draw(bars, wide, columns.flatMap((_, row) => hidden[row] ? [attention.label("not seen", { x: 2, y: (row + 0.5) * LINE, fill: "var(--soft)" }, 12)] : [
      attention.label(scores[row].toFixed(1).replace("-", "−"), { x: 34, y: (row + 0.5) * LINE, fill: "var(--soft)" }, 12, "end"),
      svgMake("rect", { x: 40, y: row * LINE + 3, width: (38 * shares[row]).toFixed(2), height: LINE - 6, rx: 2, fill: "var(--above)" }),
      attention.label(attention.percent(shares[row]), { x: 82, y: (row + 0.5) * LINE }, 12),
    ]));
    const title = (text) => make("div", text, { class: "small" });
    grid.style.gridTemplateColumns = `${room}px minmax(0,1fr) minmax(0,1fr) ${wide}px`;
    grid.append(title("query"), strips[0].canvas, title(""), title(""), title(""), title("key"), title("query × key"), title("score, weight"), names, strips[1].canvas, strips[2].canvas, bars);
    for (const canvas of [strips[1].canvas, strips[2].canvas]) canvas.style.height = `${columns.length * LINE}px`;
    stage.replaceChildren(make("p", `Query of ${attention.quoted(queries()[i])}`, { class: "products-title", dir: "auto" }), grid, status);
    if (of.biased) status.before(make("p", "This family adds a bias by position to the scores, or caps them, so the weights do not follow from these sums alone.", { class: "small" }));
    const best = shares.indexOf(Math.max(...shares));
    say(best < 0 ? "" : `${attention.quoted(queries()[i])} gives most weight to ${attention.quoted(keys()[columns[best]])} (${attention.percent(shares[best])}); their products sum to ${scores[best].toFixed(2).replace("-", "−")} over ${of.width} dimensions.`);
    drawing = () => {
      const part = svgMake("g", {}), at = (x, y, children) => { const inner = svgMake("g", { transform: `translate(${x},${y})` }); inner.append(...children); part.append(inner); };
      const columnWidth = 4 * of.width, colors = attention.paperRamp(true), left = room, middle = room + columnWidth + 12, right = middle + columnWidth + 12;
      part.append(attention.label(`query of ${attention.quoted(queries()[i])}: ${place()}`, { x: left, y: 8 }, 13));
      at(left, 18, attention.cellPaths(1, of.width, strips[0].level, [4, LINE - 2], colors));
      for (const [x, text] of [[left, "key"], [middle, "query × key"], [right, "score, weight"]]) part.append(attention.label(String(text), { x, y: 52, fill: "var(--soft)" }, 12));
      at(0, 62, [...names.cloneNode(true).childNodes]);
      at(left, 62, attention.cellPaths(columns.length, of.width, strips[1].level, [4, LINE], colors));
      at(middle, 62, attention.cellPaths(columns.length, of.width, strips[2].level, [4, LINE], colors));
      at(right, 62, [...bars.cloneNode(true).childNodes]);
      return attention.drawingOf([{ group: part, width: right + wide, height: 62 + columns.length * LINE }], 1e5);
    };
  };
  const strip = (vectors) => {
    const most = vectors.reduce((most, vector) => vector.reduce((inner, value) => Math.max(inner, Math.abs(value)), most), 1e-9);
    const level = (row, column) => Math.round(127.5 + 127.5 * vectors[row][column] / most);
    const canvas = make("canvas", "", { "aria-hidden": "true" });
    attention.paintCells(canvas, vectors.length, vectors[0]?.length || 0, level, attention.ramp(attention.screenColors(), true));
    return { canvas, level };
  };

  // ---- controls
  const open = (button) => {
    change({ ["layer" + suffix]: button.dataset.layer, ["head" + suffix]: button.dataset.head, show: "head" });
    one("[data-view=head]", controls).focus();
  };
  const options = (select, values, chosen) => {
    select.replaceChildren(...values.map(([value, text]) => make("option", String(text), { value })));
    select.value = String(chosen);
  };
  const paintControls = () => {
    for (const button of all("button", at("views"))) check(button, button.dataset.view === view());
    if (at("kinds")) for (const button of all("button", at("kinds"))) check(button, button.dataset.kind === kind().id);
    options(at("layer"), kind().layers.map((of) => [of.layer, of.layer]), layer().layer);
    options(at("head"), Array.from({ length: layer().heads }, (_, number) => [number, number]), head());
    options(at("query"), attention.shownTokens(queries(), hideSpecial()).map((index) => [index, `${index + 1} ${queries()[index].text}`]), query());
    at("maps").replaceChildren(...mapsOf().map((name) => {
      const button = make("button", MAPS[name], { type: "button", role: "radio", "data-map": name });
      check(button, name === shownMap());
      return button;
    }));
    const drawn = drawnHeads();
    at("with").replaceChildren(make("span", "heads in colours", { class: "small" }), ...Array.from({ length: layer().heads }, (_, number) => {
      const place = drawn.indexOf(number), button = make("button", String(number), { type: "button", "data-with": number, "aria-pressed": String(place >= 0), "aria-label": `head ${number}` });
      if (place >= 0 && drawn.length > 1) button.style.setProperty("--s", `var(--series-${place})`);
      button.disabled = number === head() || (place < 0 && drawn.length === MOST_HEADS);
      return button;
    }));
    if (at("between")) for (const button of all("button", at("between"))) check(button, button.dataset.between === between());
    if (at("special")) at("special").checked = hideSpecial();
    for (const control of all("[data-for]", root)) control.hidden = !control.dataset.for.split(" ").includes(view());
  };
  // ---- the context that further views get; `current()` says whether the reader still waits for their answer
  const context = () => {
    const mine = ++turn;
    drawing = () => "";
    headView = null;
    watcher?.disconnect();
    return {
      root, stage, status, say, data, suffix, kind, layer, head, query, queries, keys, hideSpecial, own, scale, change, draw: (how) => { drawing = how; },
      current: () => mine === turn,
      show: (...parts) => { if (mine === turn) stage.replaceChildren(...parts, status); },
    };
  };
  const paint = () => {
    paintControls();
    root.dataset.shown = view();
    const further = furtherViews[view()];
    downloads.hidden = view() === "changes" || view() === "swap"; // tables, no figure
    if (further) further.paint(context());
    else ({ head: paintHead, model: paintModel, products: paintProducts })[view()]();
  };
  const change = (changes) => { remember(changes); (data.painted || paint)(); data.chosen?.(); };
  at("save").addEventListener("click", async () => {
    const svg = await drawing();
    if (svg) saveSvg(`attention-${kind().id.replace("/", "-")}-${view()}`, svg);
  });
  page.repaints.push(() => { if (root.isConnected) paint(); });
  buildControls();
  return {
    paint, kind, layer, head, query, view, offered, root,
    show(next) {
      data = next;
      headView = null;
      if (builtFor !== shape()) buildControls();
      paint();
    },
    data: () => data,
  };
};
