"use strict";
// The route of a state leads from the state down to the tokens, through the heads, feed-forward blocks and residual
// connections that each make up at least some share of a state. Columns are tokens; rows of dots are states after an attention and after a feed-forward
// block. Heads from one token to another are one line with the number of the strongest; a line's width is its share.
// route.trace(of, start, least) → { edges, reached }; the view keeps the state and the share in the address.
const route = (() => {
  const HEAD = 0, FEED_FORWARD = 1, RESIDUAL = 2;
  const STEPS = [0.01, 0.02, 0.04, 0.07, 0.1, 0.2]; // least shares; the authors use 0.01 to 0.1
  const numbers = new WeakMap(); // an answer → its edges by stack and row
  const byRow = (of) => {
    if (!numbers.has(of)) {
      const rows = Object.values(of.rows).map((own) => own.map(() => /** @type {RouteEdge[]} */ ([])));
      for (const [stack, row, part, head, token, source, share] of of.edges) rows[stack][row].push({ stack, row, part, head, token, source, share: share / 1000 });
      numbers.set(of, rows);
    }
    return numbers.get(of);
  };
  // Where an edge comes from: the row below, or the encoder's last row.
  /** @type {(of: RouteData, edge: RouteEdge) => RouteNode} */
  const from = (of, edge) => {
    const stacks = Object.keys(of.rows), across = edge.part === HEAD && of.rows[stacks[edge.stack]][edge.row][1] === "cross";
    return across ? { stack: 0, row: of.rows[stacks[0]].length, token: edge.source } : { stack: edge.stack, row: edge.row, token: edge.source };
  };
  const key = ({ stack, row, token }) => `${stack}.${row}.${token}`;
  /** @type {(of: RouteData, start: RouteNode, least: number) => { edges: RouteEdge[], reached: Set<string> }} */
  const trace = (of, start, least) => {
    const stacks = Object.keys(of.rows), reached = new Set([key(start)]), edges = [];
    for (let stack = start.stack; stack >= 0; stack--) for (let row = of.rows[stacks[stack]].length - 1; row >= 0; row--) {
      for (const edge of byRow(of)[stack][row]) {
        if (edge.share < least || !reached.has(key({ ...edge, row: row + 1 }))) continue;
        edges.push(edge);
        reached.add(key(from(of, edge)));
      }
    }
    return { edges, reached };
  };
  // One line for all heads from a token to another, and one for each other part; lines, and their edges, strongest first.
  /** @type {(edges: RouteEdge[]) => RouteEdge[][]} */
  const lines = (edges) => {
    const found = new Map();
    for (const edge of edges) {
      const name = [edge.part, edge.stack, edge.row, edge.token, edge.source].join();
      found.set(name, [...(found.get(name) || []), edge]);
    }
    return [...found.values()].map((own) => own.sort((a, b) => b.share - a.share)).sort(([a], [b]) => b.share - a.share);
  };
  return { trace, from, key, lines, STEPS, HEAD, FEED_FORWARD, RESIDUAL };
})();

furtherViews.route = (() => {
  const { make, svgMake, remember } = page;
  const ROW = 22, LEFT = 30, GAP = 26, TOP = 34;

  // Columns of tokens, the encoder's left of the decoder's; rows of states from the input upwards, at the same height in both.
  const placed = (of, data, hideSpecial, width) => {
    const stacks = Object.keys(of.rows), shown = stacks.map((stack) => attention.shownTokens(data.tokens[stack], hideSpecial));
    const count = shown.reduce((sum, own) => sum + own.length, 0), most = Math.max(...stacks.map((stack) => of.rows[stack].length));
    const column = Math.min(Math.max((width - LEFT - 8 - GAP * (stacks.length - 1)) / Math.max(count, 1), 44), 110);
    const lefts = shown.map((_, stack) => LEFT + stack * GAP + column * shown.slice(0, stack).reduce((sum, own) => sum + own.length, 0));
    const x = (stack, token) => lefts[stack] + (shown[stack].indexOf(token) + 0.5) * column, y = (stack, row) => TOP + most * ROW * (1 - row / of.rows[stacks[stack]].length);
    // The state at a point: above or below the rows, the last one of the token.
    const node = (left, top) => {
      const stack = lefts.findLastIndex((start, number) => number === 0 || left >= start - GAP / 2), own = shown[stack];
      const token = own[Math.min(Math.max(Math.floor((left - lefts[stack]) / column), 0), own.length - 1)], last = of.rows[stacks[stack]].length;
      const row = Math.round(last * (1 - (top - TOP) / (most * ROW)));
      return { stack, row: row < 0 || row > last ? last : row, token };
    };
    return { stacks, shown, column, x, y, node, width: Math.ceil(LEFT + GAP * (stacks.length - 1) + column * count + 8), height: TOP + most * ROW + 32 };
  };
  const rowsOf = (of, stack) => of.rows[Object.keys(of.rows)[stack]];
  const named = (of, edge) => {
    const [layer, sublayer] = rowsOf(of, edge.stack)[edge.row];
    if (edge.part === route.FEED_FORWARD) return `feed-forward block of layer ${layer}`;
    return edge.part === route.HEAD ? `${sublayer === "cross" ? "cross-attention " : ""}head ${edge.head} of layer ${layer}` : `residual of layer ${layer}`;
  };
  const stateName = (of, data, { stack, row, token }) => {
    const name = attention.quoted(data.tokens[Object.keys(of.rows)[stack]][token]), rows = rowsOf(of, stack);
    if (row === rows.length) return Object.keys(of.rows)[stack] === of.top && data.predicts ? `The prediction at ${name}` : `The last state of ${name}`;
    const [layer, sublayer] = rows[row - 1] || [];
    return row ? `${name} after the ${{ self: "attention", cross: "cross-attention" }[sublayer] || "feed-forward block"} of layer ${layer}` : `${name}, the input,`;
  };

  const curve = (part, own, [x1, y1], [x2, y2]) => {
    const bend = own ? { [route.FEED_FORWARD]: 9, [route.HEAD]: -9 }[part] : 0, middle = (y1 + y2) / 2;
    return bend ? `M${x1} ${y1}C${x1 + bend} ${y1 + 5} ${x1 + bend} ${y2 - 5} ${x2} ${y2}` : `M${x1.toFixed(1)} ${y1}C${x1.toFixed(1)} ${middle} ${x2.toFixed(1)} ${middle} ${x2.toFixed(1)} ${y2}`;
  };
  const draw = (svg, of, data, start, least, at) => {
    const { edges, reached } = route.trace(of, start, least), taken = /** @type {Record<string, [number, number][]>} */ ({}); // by row: where marks stand
    const lines = svgMake("g", { fill: "none" }), marks = svgMake("g", {}), dots = svgMake("g", {}), texts = svgMake("g", {});
    for (const [edge, ...others] of route.lines(edges)) {
      const below = route.from(of, edge), [x1, y1, x2, y2] = [at.x(edge.stack, edge.token), at.y(edge.stack, edge.row + 1), at.x(below.stack, below.token), at.y(below.stack, below.row)];
      if (!at.shown[edge.stack].includes(edge.token) || !at.shown[below.stack].includes(below.token)) continue;
      const own = x1 === x2, share = others.reduce((sum, one) => sum + one.share, edge.share), middle = (y1 + y2) / 2, color = ["var(--above)", "var(--below)", "var(--control)"][edge.part];
      const path = svgMake("path", { d: curve(edge.part, own, [x1, y1], [x2, y2]), stroke: color, "stroke-width": (0.8 + 7 * share).toFixed(2), "stroke-opacity": Math.min(0.35 + share, 0.95).toFixed(2) }), title = svgMake("title", {});
      title.textContent = [edge, ...others].map((one) => `${named(of, one)}, from ${attention.quoted(data.tokens[at.stacks[below.stack]][below.token])}: ${attention.percent(one.share)}`).join("\n");
      lines.append(path);
      if (edge.part === route.RESIDUAL) { path.append(title); continue; }
      const text = edge.part === route.HEAD ? `${edge.head}${others.length ? `+${others.length}` : ""}` : "", wide = text ? attention.measured(text, 10) + 6 : 7, high = text ? 13 : 7;
      const x = own ? x1 + (text ? -7 - wide / 2 : 6.5) : (x1 + x2) / 2, row = (taken[middle] ??= []);
      path.append(title);
      if (text && row.some(([left, right]) => x + wide / 2 > left && x - wide / 2 < right)) continue; // the line alone
      if (text) row.push([x - wide / 2, x + wide / 2]);
      const mark = svgMake("g", {});
      mark.append(title.cloneNode(true), svgMake("rect", { x: x - wide / 2, y: middle - high / 2, width: wide, height: high, rx: text ? 4 : 0, fill: text ? "var(--paper)" : color, stroke: text ? color : "none", ...(text ? {} : { "fill-opacity": Math.min(0.35 + share, 1).toFixed(2) }) }));
      if (text) mark.append(attention.label(text, { x, y: middle }, 10, "middle"));
      marks.append(mark);
    }
    at.stacks.forEach((stack, number) => {
      const last = of.rows[stack].length;
      for (let row = 0; row <= last; row++) for (const token of at.shown[number]) {
        const on = reached.has(route.key({ stack: number, row, token }));
        dots.append(svgMake("circle", { cx: at.x(number, token), cy: at.y(number, row), r: on ? 3.4 : 1.6, fill: on ? "var(--ink)" : "var(--grid)" }));
      }
      for (const token of at.shown[number]) {
        const text = attention.fitted(data.tokens[stack][token].text, at.column - 4, 13), on = reached.has(route.key({ stack: number, row: 0, token }));
        for (const [y, strong] of [[at.y(number, 0) + 18, on], [at.y(number, last) - 18, number === start.stack && token === start.token]]) texts.append(attention.label(text, { x: at.x(number, token), y, ...(strong ? { "font-weight": 700 } : { fill: "var(--soft)" }) }, 13, "middle"));
      }
    });
    const chosen = svgMake("g", { class: "node", role: "button", tabindex: 0, "aria-label": `${stateName(of, data, start)}; arrow keys choose another state` });
    chosen.append(svgMake("rect", { x: at.x(start.stack, start.token) - 8, y: at.y(start.stack, start.row) - 8, width: 16, height: 16, rx: 8, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5 }));
    svg.replaceChildren(lines, dots, marks, texts, chosen, layers(of, at));
    for (const [name, value] of [["viewBox", `0 0 ${at.width} ${at.height}`], ["width", at.width], ["height", at.height]]) svg.setAttribute(String(name), String(value));
    return { edges, reached };
  };
  // The layers' numbers stay in sight when the picture scrolls sideways.
  const layers = (of, at) => {
    const group = svgMake("g", { class: "layers" }), rows = of.rows[of.top], top = at.stacks.indexOf(of.top);
    group.append(svgMake("rect", { x: 0, y: 0, width: LEFT - 6, height: at.height, fill: "var(--paper)" }));
    rows.forEach(([layer], row) => {
      if (row === 0 || rows[row - 1][0] !== layer) group.append(attention.label(String(layer), { x: LEFT - 12, y: at.y(top, row + 1), fill: "var(--soft)" }, 12, "end"));
    });
    return group;
  };
  const summary = (of, data, start, least, { edges, reached }) => {
    const strongest = (part, most) => edges.filter((edge) => edge.part === part).sort((a, b) => b.share - a.share).slice(0, most).map((edge) => `${named(of, edge)} (${attention.percent(edge.share)})`).join(", ");
    const ends = Object.keys(of.rows).flatMap((stack, number) => data.tokens[stack].filter((_, token) => reached.has(route.key({ stack: number, row: 0, token }))).map((one) => attention.quoted(one)));
    const heads = edges.filter((edge) => edge.part === route.HEAD).length, count = `${edges.length} edge${edges.length === 1 ? "" : "s"} of at least ${attention.percent(least)}, ${heads} of them through heads`;
    const best = [strongest(route.HEAD, 3), strongest(route.FEED_FORWARD, 2)].filter(Boolean).join("; ");
    return `${stateName(of, data, start)} has ${count}. ${ends.length ? `The route starts from ${ends.slice(0, 8).join(", ")}${ends.length > 8 ? ` and ${ends.length - 8} more` : ""}` : "None reaches a token"}. Strongest: ${best || "only residual connections"}.`;
  };

  const paint = async (context) => {
    const { data, own, say, hideSpecial, suffix } = context;
    let of;
    try { of = await data.ask("route"); }
    catch (error) {
      if (context.current()) { context.show(); say(error.message); }
      return;
    }
    if (!context.current()) return;
    const box = make("div", "", { class: "lines-scroll" }), svg = svgMake("svg", { class: "flow", role: "group", "font-family": attention.FONT }), detail = make("div", "", { class: "node-lens", "aria-live": "polite" });
    const range = make("input", "", { type: "range", min: 0, max: route.STEPS.length - 1, step: 1, "data-name": "least" }), shown = make("output"), label = make("label", "edges from ", { class: "seed" });
    label.append(range, " ", shown);
    box.append(svg);
    context.show(label, box, detail);
    box.after(context.status);
    const at = placed(of, data, hideSpecial(), box.clientWidth || 600), top = at.stacks.indexOf(of.top), last = of.rows[of.top].length;
    const least = () => route.STEPS.find((step) => String(step) === own("least")) ?? 0.04;
    // The state in the address; else the prediction at the chosen token, or the last one.
    const start = () => {
      const [stack, row, token] = (own("trace") || "x").split(".").map(Number), chosen = Number(own("at") || "x"), there = at.shown[top];
      if (at.shown[stack]?.includes(token) && row >= 0 && row <= rowsOf(of, stack).length && (stack !== top || !own("at") || chosen === token)) return { stack, row, token };
      return { stack: top, row: last, token: there.includes(chosen) ? chosen : there[there.length - 1] ?? 0 };
    };
    const stick = (by) => page.one(".layers", svg)?.setAttribute("transform", `translate(${by},0)`);
    const show = () => {
      range.value = String(route.STEPS.indexOf(least()));
      shown.textContent = attention.percent(least());
      range.setAttribute("aria-valuetext", shown.textContent);
      svg.setAttribute("aria-label", `Route: ${stateName(of, data, start())}`);
      say(summary(of, data, start(), least(), draw(svg, of, data, start(), least(), at)));
      stick(box.scrollLeft);
    };
    const speaks = data.predicts && Boolean(data.live || data.answers?.lens?.length);
    const tellLens = async () => {
      const { stack, row, token } = start(), below = rowsOf(of, stack).slice(0, row), trace = own("trace");
      detail.replaceChildren();
      if (!speaks || stack !== top || (row && below[row - 1][1] !== "feed-forward")) return;
      try {
        const lens = await data.ask("lens", { position: token }), state = below.filter(([, sublayer]) => sublayer === "feed-forward").length;
        if (trace === own("trace") && context.current()) detail.replaceChildren(make("h4", `What the model would predict there`), predictions.candidates(lens, token, state));
      } catch { /* the picture needs no lens */ }
    };
    const choose = (next, focus) => {
      remember({ ["trace" + suffix]: route.key(next), ...(next.stack === top ? { ["at" + suffix]: String(next.token) } : {}) });
      show();
      tellLens();
      if (focus) page.one(".node", svg)?.focus();
      data.chosen?.();
    };
    box.addEventListener("scroll", () => stick(box.scrollLeft));
    range.addEventListener("input", () => { remember({ ["least" + suffix]: String(route.STEPS[Number(range.value)]) }); show(); });
    svg.addEventListener("click", (event) => {
      const corner = svg.getBoundingClientRect();
      choose(at.node(event.clientX - corner.left, event.clientY - corner.top), false);
    });
    svg.addEventListener("keydown", (event) => {
      const [up, right] = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [0, 0], { stack, row, token } = start();
      const next = { stack, row: row + up, token: at.shown[stack][at.shown[stack].indexOf(token) + right] };
      if (!(up || right) || next.token === undefined || next.row < 0 || next.row > rowsOf(of, stack).length) return;
      event.preventDefault();
      choose(next, true);
    });
    show();
    tellLens();
    box.scrollLeft = at.x(start().stack, start().token) - box.clientWidth / 2;
    context.draw(() => {
      stick(0);
      const drawn = attention.drawingOf([attention.copied(svg)], 1e5);
      stick(box.scrollLeft);
      return drawn;
    });
  };
  return { label: "route", there: (data) => Boolean(data.further?.includes("route")), paint };
})();
