"use strict";
// How information flows through a sentence: tokens from left to right, layers from bottom to top. A line is the share
// of one token in another's new vector (ALTI); choosing a node shows what it is made of, down to the first layer.
// flow.load(data, block) → a flow; flow.trace(flow, level, start) → shares; flow.picture(host, tell) draws.
const flow = (() => {
  const { svgMake, one } = page;
  const LEVEL = 58, LEFT = 42, NODE = 22, BINS = 14, LEAST_TRACED = 0.01, LINES_PER_NODE = 2;
  const STEPS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3]; // shares from which on lines may be drawn

  // Plain data with names of blocks → the same with numbers; `block(name)` promises the bytes.
  /** @type {(data: FlowData, block: Blocks) => Promise<Flow>} */
  const load = async (data, block) => {
    const numbers = (names) => Promise.all(names.map(async (name) => attention.weightsOf(await block(name))));
    const [mixing, across] = await Promise.all([numbers(data.mixing), data.across ? numbers(data.across) : null]);
    return { ...data, mixing, across };
  };

  // r_L = start; r_l[j] = Σ_i r_{l+1}[i] (1 − Σ_s C_l[i, s]) M_l[i, j]; the source gets Σ_l Σ_i r_{l+1}[i] C_l[i, s].
  /** @type {(of: Flow, level: number, start: Float32Array) => Trace} */
  const trace = (of, level, start) => {
    const size = of.tokens.length, columns = of.across ? of.across[0].length / size : 0;
    const reaches = Array(level + 1), through = Array(level), source = new Float32Array(columns);
    reaches[level] = start;
    for (let layer = level - 1; layer >= 0; layer--) {
      const at = through[layer] = Float32Array.from(reaches[layer + 1]), next = reaches[layer] = new Float32Array(size);
      for (let i = 0; i < size; i++) {
        if (!at[i]) continue;
        let crossed = 0;
        for (let s = 0; s < columns; s++) { const share = of.across?.[layer][i * columns + s] ?? 0; crossed += share; source[s] += at[i] * share; }
        at[i] *= Math.max(1 - crossed, 0);
        for (let j = 0; j < size; j++) next[j] += at[i] * of.mixing[layer][i * size + j];
      }
    }
    return { reaches, through, source };
  };
  const from = (of, { level, token }) => trace(of, level, Float32Array.from(of.tokens, (_, index) => Number(index === token)));

  // The least share of which at most so many lines per node between two tokens are drawn.
  /** @type {(of: Flow, shown: number[]) => number} */
  const clear = (of, shown) => {
    const most = LINES_PER_NODE * shown.length * of.mixing.length;
    const count = (least) => of.mixing.reduce((sum, mixing) => sum + shown.reduce((own, i) => own + shown.filter((j) => i !== j && mixing[i * of.tokens.length + j] >= least).length, 0), 0);
    return STEPS.find((least) => count(least) <= most) ?? STEPS[STEPS.length - 1];
  };

  /** @type {(host: HTMLElement, tell: (text: string, pinned: { level: number, token: number } | null) => void) => any} */
  const picture = (host, tell) => {
    const svg = svgMake("svg", { class: "flow", role: "group", "font-family": attention.FONT });
    host.replaceChildren(svg);
    const lines = svgMake("g", { fill: "none", "aria-hidden": "true" }), shares = svgMake("g", { "aria-hidden": "true" });
    /** @type {any} */
    let active = null;
    /** @type {any} */
    let pinned = null;
    let of = null, source = null, shown = [], least = 0.1, nodes = new Map(), place = {}, wide = 0;
    const key = (at) => at && `${at.level}.${at.token}`;
    const layerOf = (level) => (level ? (of.layers?.[level - 1] ?? level - 1) + 1 : 0); // 0 is the input, as in the report
    const top = () => of.mixing.length;
    const guess = ({ level, token }) => of.guesses?.[level]?.[token];
    const x = (column) => place.left + (column + 0.5) * place.column;
    const y = (level) => 26 + (top() - level) * LEVEL;

    const build = () => {
      wide = host.clientWidth;
      const longest = shown.reduce((most, index) => Math.max(most, attention.measured(of.tokens[index].text, 14)), 30) + 12;
      const room = (Math.max(wide, 260) - LEFT - 6) / Math.max(shown.length, 1);
      const column = Math.max(Math.min(room, 118), Math.min(longest, 88), 46);
      place = { left: LEFT, column };
      const width = Math.ceil(LEFT + column * shown.length + 6), height = y(0) + NODE + 44;
      svg.replaceChildren(lines);
      for (const [name, value] of [["viewBox", `0 0 ${width} ${height}`], ["width", width], ["height", height]]) svg.setAttribute(String(name), String(value));
      nodes = new Map();
      for (let level = 0; level <= top(); level++) {
        svg.append(attention.label(String(layerOf(level)), { x: LEFT - 6, y: y(level), fill: "var(--soft)" }, 12, "end"));
        shown.forEach((token, index) => addNode(level, token, index));
      }
      shown.forEach((token, index) => {
        const text = attention.label(attention.fitted(of.tokens[token].text, column - 4, 14), { x: x(index), y: y(0) + NODE + 6, ...(of.tokens[token].special ? { fill: "var(--soft)" } : {}) }, 14, "middle");
        const title = svgMake("title", {});
        title.textContent = of.tokens[token].text;
        text.append(title);
        svg.append(text);
      });
      svg.append(shares);
    };
    const addNode = (level, token, index) => {
      const said = guess({ level, token }), width = said ? place.column - 8 : 12, height = said ? NODE : 12;
      const where = `layer ${layerOf(level)}${level ? "" : ", the input"}`;
      const name = `${where}, token ${token + 1} of ${of.tokens.length}: ${of.tokens[token].text}${said ? `; would say ${said[0]}, ${attention.percent(said[1])}` : ""}`;
      const group = svgMake("g", { class: "node", role: "button", "data-level": level, "data-token": token, tabindex: level === top() && index === 0 ? 0 : -1, "aria-label": name });
      const title = svgMake("title", {});
      title.textContent = name;
      // The hand needs more room than the eye.
      group.append(title, svgMake("rect", { class: "touch", x: x(index) - Math.min(place.column, 60) / 2, y: y(level) - 22, width: Math.min(place.column, 60), height: 44, "fill-opacity": 0 }));
      group.append(svgMake("rect", { x: x(index) - width / 2, y: y(level) - height / 2, width, height, rx: 6, fill: "var(--paper)", stroke: "var(--grid)" }));
      group.append(svgMake("rect", { class: "held", x: x(index) - width / 2, y: y(level) - height / 2, width, height, rx: 6, fill: "var(--above)", "fill-opacity": 0 }));
      if (said) group.append(attention.label(attention.fitted(said[0], width - 6, 12), { x: x(index), y: y(level), fill: "var(--ink)", "fill-opacity": (0.5 + 0.5 * said[1]).toFixed(2) }, 12, "middle"));
      nodes.set(key({ level, token }), group);
      svg.append(group);
    };

    const paint = () => {
      const size = of.tokens.length, traced = active && from(of, active), paths = { between: Array(BINS).fill(""), along: Array(BINS).fill("") };
      for (let layer = 0; layer < (active ? active.level : top()); layer++) {
        const drop = LEVEL - NODE;
        shown.forEach((i, right) => shown.forEach((j, left) => {
          const share = of.mixing[layer][i * size + j] * (traced ? traced.through[layer][i] : 1);
          if (share < (traced ? Math.min(LEAST_TRACED, least) : least)) return;
          const [x1, y1, x2, y2] = [x(right), y(layer + 1) + NODE / 2, x(left), y(layer) - NODE / 2];
          const bin = Math.min(BINS - 1, Math.floor(Math.sqrt(share) * BINS));
          paths[i === j ? "along" : "between"][bin] += `M${x1.toFixed(1)} ${y1}C${x1.toFixed(1)} ${y1 + drop / 2} ${x2.toFixed(1)} ${y2 - drop / 2} ${x2.toFixed(1)} ${y2}`;
        }));
      }
      lines.replaceChildren(...Object.entries(paths).flatMap(([kind, bins]) => bins.flatMap((d, bin) => {
        const share = ((bin + 0.5) / BINS) ** 2, stroke = kind === "along" && !traced ? "var(--control)" : "var(--above)";
        return d ? [svgMake("path", { d, class: kind, stroke, "stroke-width": (0.8 + 7 * share).toFixed(2), "stroke-opacity": Math.min(0.25 + share, 0.9).toFixed(2) })] : [];
      })));
      shares.replaceChildren();
      for (const [name, group] of nodes) {
        const [level, token] = name.split(".").map(Number), held = traced?.reaches[level]?.[token] ?? 0;
        one(".held", group).setAttribute("fill-opacity", traced ? (0.6 * held).toFixed(3) : 0);
        group.setAttribute("opacity", traced && held < 0.005 ? 0.35 : 1);
        group.setAttribute("aria-pressed", String(name === key(pinned)));
        group.classList.toggle("active", name === key(active));
      }
      if (traced) shown.forEach((token, index) => {
        const share = traced.reaches[0][token];
        if (share >= 0.005) shares.append(attention.label(attention.percent(share), { x: x(index), y: y(0) + NODE + 26, fill: "var(--soft)" }, 12, "middle"));
      });
      tell(traced ? toldOf(traced) : told(), pinned);
    };
    const best = (values, tokens, most = 4) => [...values].map((share, index) => [share, tokens[index]]).filter(([share]) => share >= 0.01).sort((a, b) => b[0] - a[0]).slice(0, most).map(([share, token]) => `${attention.quoted(token)} ${attention.percent(share)}`).join(", ");
    const toldOf = (traced) => {
      const said = guess(active), where = active.level ? `at layer ${layerOf(active.level)}` : "at layer 0";
      const made = `${attention.quoted(of.tokens[active.token])} ${where}${said ? `, where the model would say “${said[0]}” (${attention.percent(said[1])}),` : ""}`;
      if (!active.level) return `${made} is the token itself.`;
      const total = traced.source.reduce((sum, share) => sum + share, 0);
      const below = total >= 0.005 && source ? trace(source, source.mixing.length, traced.source).reaches[0] : null;
      const crossed = below ? `; ${attention.percent(total)} came from the source: ${best(below, source.tokens)}` : "";
      return `${made} is made of ${best(traced.reaches[0], of.tokens) || "no token of its own side"}${crossed}.`;
    };
    const told = () => {
      let most = 0, where = /** @type {number[] | null} */ (null), count = 0;
      for (const [layer, mixing] of of.mixing.entries()) for (const i of shown) for (const j of shown) if (i !== j) {
        const share = mixing[i * of.tokens.length + j];
        if (share >= least) count++;
        if (share > most) { most = share; where = [layer, i, j]; }
      }
      if (!where) return "No token reaches another here.";
      const [layer, i, j] = where;
      return `${count || "No"} line${count === 1 ? "" : "s"} of ${attention.percent(least)} or more between tokens; the strongest: layer ${layerOf(layer + 1)} brings ${attention.percent(most)} of ${attention.quoted(of.tokens[j])} into ${attention.quoted(of.tokens[i])}. Choose a node to see what it is made of.`;
    };

    const at = (event) => {
      const { level, token } = event.target?.closest?.(".node")?.dataset || {};
      return level === undefined ? null : { level: Number(level), token: Number(token) };
    };
    const activate = (next) => {
      const before = key(active);
      active = next ?? pinned;
      if (before !== key(active)) paint();
    };
    const pin = (next) => { pinned = key(next) === key(pinned) ? null : next; active = pinned; paint(); };
    svg.addEventListener("pointerover", (event) => { if (event.pointerType !== "touch") activate(at(event)); });
    svg.addEventListener("pointerleave", () => activate(null));
    svg.addEventListener("focusin", (event) => activate(at(event)));
    svg.addEventListener("focusout", () => activate(null));
    svg.addEventListener("click", (event) => { const node = at(event); if (node) pin(node); });
    svg.addEventListener("keydown", (event) => {
      const node = at(event);
      if (!node) return;
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pin(node); return; }
      if (event.key === "Escape" && pinned) { event.stopPropagation(); pin(null); return; }
      const [up, right] = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [0, 0];
      const token = shown[shown.indexOf(node.token) + right], next = nodes.get(key({ level: node.level + up, token }));
      if (!(up || right) || !next) return;
      event.preventDefault();
      for (const group of nodes.values()) group.setAttribute("tabindex", -1);
      next.setAttribute("tabindex", 0);
      next.focus();
    });
    new ResizeObserver(() => { if (of && host.clientWidth && host.clientWidth !== wide) { build(); paint(); } }).observe(host);

    return {
      svg,
      /** One flow, of cross-attention's source too; `edges`: the least share, or none for what keeps the picture clear.
       * @param {Flow} next
       * @param {{ source?: Flow | null, hideSpecial?: boolean, edges?: number | null, pinTo?: any }} options */
      show(next, { source: across = null, hideSpecial = false, edges = null, pinTo = null } = {}) {
        of = next;
        source = across;
        shown = attention.shownTokens(of.tokens, hideSpecial);
        least = edges ?? clear(of, shown);
        pinned = pinTo && pinTo.level <= top() && shown.includes(pinTo.token) ? pinTo : null;
        active = pinned;
        svg.setAttribute("aria-label", `Flow through the ${of.stack}: ${top()} layers, ${shown.length} tokens`);
        build();
        paint();
        if (pinned) host.scrollLeft = x(shown.indexOf(pinned.token)) - host.clientWidth / 2;
        return least;
      },
    };
  };
  return { load, trace, from, picture, STEPS };
})();
