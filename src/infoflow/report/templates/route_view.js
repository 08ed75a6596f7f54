"use strict";
// The route of a prediction: from its last state down to the tokens, the heads, feed-forward blocks and residual
// connections that make up at least a share of each state. Nodes are tokens after an attention (circles) and after a
// feed-forward block (squares, filled by the block's share); a line's width is its share.
// route.trace(of, token, least) → { edges, reached }; the view keeps the prediction and the share in the address.
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
  const from = (of, edge) => {
    const stacks = Object.keys(of.rows), across = edge.part === HEAD && of.rows[stacks[edge.stack]][edge.row][1] === "cross";
    return across ? { stack: 0, row: of.rows[stacks[0]].length, token: edge.source } : { stack: edge.stack, row: edge.row, token: edge.source };
  };
  /** @type {(of: RouteData, token: number, least: number) => { edges: RouteEdge[], reached: Set<string> }} */
  const trace = (of, token, least) => {
    const stacks = Object.keys(of.rows), top = stacks.indexOf(of.top), reached = new Set([`${top}.${of.rows[of.top].length}.${token}`]), edges = [];
    for (let stack = top; stack >= 0; stack--) for (let row = of.rows[stacks[stack]].length - 1; row >= 0; row--) {
      for (const edge of byRow(of)[stack][row]) {
        if (edge.share < least || !reached.has(`${stack}.${row + 1}.${edge.token}`)) continue;
        const { stack: below, row: level, token: source } = from(of, edge);
        edges.push(edge);
        reached.add(`${below}.${level}.${source}`);
      }
    }
    return { edges, reached };
  };
  return { trace, from, STEPS, HEAD, FEED_FORWARD, RESIDUAL };
})();

furtherViews.route = (() => {
  const { make, svgMake, remember } = page;
  const ROW = 22, LEFT = 44, GAP = 26, TOP = 34;

  // Columns of tokens, the encoder's left of the decoder's; rows of nodes from the input upwards.
  const placed = (of, data, hideSpecial, width) => {
    const stacks = Object.keys(of.rows), shown = stacks.map((stack) => attention.shownTokens(data.tokens[stack], hideSpecial));
    const count = shown.reduce((sum, own) => sum + own.length, 0), most = Math.max(...stacks.map((stack) => of.rows[stack].length));
    const column = Math.min(Math.max((width - LEFT - 8 - GAP * (stacks.length - 1)) / Math.max(count, 1), 44), 110);
    const lefts = shown.map((_, stack) => LEFT + stack * GAP + column * shown.slice(0, stack).reduce((sum, own) => sum + own.length, 0));
    const x = (stack, token) => lefts[stack] + (shown[stack].indexOf(token) + 0.5) * column, y = (row) => TOP + (most - row) * ROW;
    return { stacks, shown, column, x, y, width: Math.ceil(LEFT + GAP * (stacks.length - 1) + column * count + 8), height: y(0) + 40 };
  };
  const named = (of, edge) => {
    const [layer, sublayer] = of.rows[Object.keys(of.rows)[edge.stack]][edge.row];
    if (edge.part === route.FEED_FORWARD) return `feed-forward block of layer ${layer}`;
    return edge.part === route.HEAD ? `${sublayer === "cross" ? "cross-attention " : ""}head ${edge.head} of layer ${layer}` : `residual of layer ${layer}`;
  };
  const draw = (svg, of, data, token, least, at) => {
    const { edges, reached } = route.trace(of, token, least), top = at.stacks.indexOf(of.top), last = of.rows[of.top].length;
    const lines = svgMake("g", { fill: "none" }), nodes = svgMake("g", {}), texts = svgMake("g", {});
    for (const edge of edges) {
      const below = route.from(of, edge), [x1, y1, x2, y2] = [at.x(edge.stack, edge.token), at.y(edge.row + 1), at.x(below.stack, below.token), at.y(below.row)];
      if (!at.shown[edge.stack].includes(edge.token) || !at.shown[below.stack].includes(below.token)) continue;
      const bend = edge.part === route.FEED_FORWARD ? 9 : 0, middle = (y1 + y2) / 2;
      const path = svgMake("path", {
        d: bend ? `M${x1} ${y1}C${x1 + bend} ${y1 + 5} ${x1 + bend} ${y2 - 5} ${x2} ${y2}` : `M${x1.toFixed(1)} ${y1}C${x1.toFixed(1)} ${middle} ${x2.toFixed(1)} ${middle} ${x2.toFixed(1)} ${y2}`,
        stroke: ["var(--above)", "var(--below)", "var(--control)"][edge.part], "stroke-width": (0.8 + 7 * edge.share).toFixed(2), "stroke-opacity": Math.min(0.35 + edge.share, 0.95).toFixed(2),
      });
      const title = svgMake("title", {});
      title.textContent = `${named(of, edge)}, from ${attention.quoted(data.tokens[at.stacks[below.stack]][below.token])}: ${attention.percent(edge.share)}`;
      path.append(title);
      lines.append(path);
      if (edge.part === route.FEED_FORWARD) nodes.append(svgMake("rect", { x: x1 + 3, y: middle - 3.5, width: 7, height: 7, fill: "var(--below)", "fill-opacity": Math.min(0.35 + edge.share, 1).toFixed(2) }));
    }
    at.stacks.forEach((stack, number) => {
      const rows = of.rows[stack];
      for (let row = 0; row <= rows.length; row++) for (const one of at.shown[number]) {
        const on = reached.has(`${number}.${row}.${one}`);
        nodes.append(svgMake("circle", { cx: at.x(number, one), cy: at.y(row), r: on ? 3.4 : 1.6, fill: on ? "var(--ink)" : "var(--grid)" }));
      }
      at.shown[number].forEach((one) => {
        const name = attention.fitted(data.tokens[stack][one].text, at.column - 4, 13), on = reached.has(`${number}.0.${one}`);
        texts.append(attention.label(name, { x: at.x(number, one), y: at.y(0) + 18, ...(on ? { "font-weight": 700 } : { fill: "var(--soft)" }) }, 13, "middle"));
      });
      if (number === top) rows.forEach(([layer], row) => {
        if (row === 0 || rows[row - 1][0] !== layer) texts.append(attention.label(String(layer), { x: LEFT - 12, y: at.y(row + 1) - ROW / 2, fill: "var(--soft)" }, 12, "end"));
      });
    });
    for (const one of at.shown[top]) {
      const pressed = one === token, group = svgMake("g", { class: "node", role: "button", tabindex: pressed ? 0 : -1, "data-token": one, "aria-pressed": String(pressed), "aria-label": `prediction at token ${one + 1}: ${data.tokens[of.top][one].text}` });
      const [x, y] = [at.x(top, one), at.y(last)];
      group.append(svgMake("rect", { class: "touch", x: x - at.column / 2, y: y - 34, width: at.column, height: 44, "fill-opacity": 0 }));
      group.append(svgMake("rect", { x: x - at.column / 2 + 2, y: y - 27, width: at.column - 4, height: 18, rx: 6, fill: pressed ? "var(--tint)" : "var(--paper)", stroke: pressed ? "var(--ink)" : "var(--grid)" }));
      group.append(attention.label(attention.fitted(data.tokens[of.top][one].text, at.column - 10, 12), { x, y: y - 18 }, 12, "middle"));
      texts.append(group);
    }
    svg.replaceChildren(lines, nodes, texts);
    for (const [name, value] of [["viewBox", `0 0 ${at.width} ${at.height}`], ["width", at.width], ["height", at.height]]) svg.setAttribute(String(name), String(value));
    return { edges, reached };
  };
  const summary = (of, data, token, least, { edges, reached }) => {
    const strongest = (part, most) => edges.filter((edge) => edge.part === part).sort((a, b) => b.share - a.share).slice(0, most).map((edge) => `${named(of, edge)} (${attention.percent(edge.share)})`).join(", ");
    const ends = Object.keys(of.rows).flatMap((stack, number) => data.tokens[stack].filter((_, one) => reached.has(`${number}.0.${one}`)).map((one) => attention.quoted(one)));
    const heads = edges.filter((edge) => edge.part === route.HEAD).length, count = `${edges.length} edges of at least ${attention.percent(least)}, ${heads} of them through heads`;
    const best = [strongest(route.HEAD, 3), strongest(route.FEED_FORWARD, 2)].filter(Boolean).join("; ");
    return `The prediction at ${attention.quoted(data.tokens[of.top][token])} has ${count}. It starts from ${ends.slice(0, 8).join(", ") || "no token"}${ends.length > 8 ? ` and ${ends.length - 8} more` : ""}. Strongest: ${best || "residual connections alone"}.`;
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
    const box = make("div", "", { class: "lines-scroll" }), svg = svgMake("svg", { class: "flow", role: "group", "font-family": attention.FONT });
    const range = make("input", "", { type: "range", min: 0, max: route.STEPS.length - 1, step: 1, "data-name": "least" }), shown = make("output"), label = make("label", "edges from ", { class: "seed" });
    label.append(range, " ", shown);
    box.append(svg);
    context.show(label, box);
    box.after(context.status);
    const tokens = data.tokens[of.top], shownTokens = () => attention.shownTokens(tokens, hideSpecial());
    const least = () => route.STEPS.find((step) => String(step) === own("least")) ?? 0.04;
    const token = () => {
      const chosen = Number(own("at") || "x"), there = shownTokens();
      return there.includes(chosen) ? chosen : there[there.length - 1] ?? 0;
    };
    const show = () => {
      const at = placed(of, data, hideSpecial(), box.clientWidth || 600);
      range.value = String(route.STEPS.indexOf(least()));
      shown.textContent = attention.percent(least());
      range.setAttribute("aria-valuetext", shown.textContent);
      svg.setAttribute("aria-label", `Route of the prediction at token ${token() + 1}, ${tokens[token()]?.text}`);
      say(summary(of, data, token(), least(), draw(svg, of, data, token(), least(), at)));
    };
    const choose = (one, focus) => {
      remember({ ["at" + suffix]: String(one) });
      show();
      if (focus) page.one("[aria-pressed=true]", svg)?.focus();
      data.chosen?.();
    };
    range.addEventListener("input", () => { remember({ ["least" + suffix]: String(route.STEPS[Number(range.value)]) }); show(); });
    svg.addEventListener("click", (event) => { const group = event.target?.closest(".node"); if (group) choose(Number(group.dataset.token), false); });
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], there = shownTokens(), next = there[there.indexOf(token()) + (step ?? 0)];
      if (!step || next === undefined) return;
      event.preventDefault();
      choose(next, true);
    });
    show();
    box.scrollLeft = box.scrollWidth;
    context.draw(() => attention.drawingOf([attention.copied(svg)], 1e5));
  };
  return { label: "route", there: (data) => Boolean(data.further?.includes("route")), paint };
})();
