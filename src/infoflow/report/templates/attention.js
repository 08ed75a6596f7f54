"use strict";
// Attention drawn: lines between tokens and maps of rows by columns. The report and `infoflow view` share it.
const attention = (() => {
  const { make, svgMake, one, all, lightColors } = page;
  const FONT = "Liberation Sans, Arial, Helvetica, sans-serif";
  const ROW = 24, BINS = 16, MOST_LINES = 4000;

  // ---- numbers: bytes stand for (q/255)², deflated and in base64
  const SQUARES = Float32Array.from({ length: 256 }, (_, byte) => (byte / 255) ** 2);
  /** @type {(text: string) => Promise<Uint8Array>} */
  const unpack = async (text) => {
    const binary = atob(text.trim()), packed = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) packed[i] = binary.charCodeAt(i);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };
  /** @type {(bytes: Uint8Array) => Float32Array} */
  const signedOf = (bytes) => Float32Array.from(new Int8Array(bytes.buffer, bytes.byteOffset, bytes.length), (step) => Math.sign(step) * (step / 127) ** 2);
  /** @type {(bytes: Uint8Array) => Float32Array} */
  const weightsOf = (bytes) => Float32Array.from(bytes, (byte) => SQUARES[byte]);
  // Shares of ‖A f(x)‖ in each row, so that they lie on the scale of the weights.
  /** @type {(weights: Float32Array, norms: Float32Array) => Float32Array} */
  const valueWeighted = (weights, norms) => {
    const columns = norms.length, shares = new Float32Array(weights.length);
    for (let start = 0; start < weights.length; start += columns) {
      let sum = 0;
      for (let j = 0; j < columns; j++) sum += shares[start + j] = weights[start + j] * norms[j];
      if (sum > 0) for (let j = 0; j < columns; j++) shares[start + j] /= sum;
    }
    return shares;
  };
  /** @type {(share: number) => string} */
  const percent = (share) => share < 0 ? `−${percent(-share)}` : share >= 0.0995 ? `${Math.round(100 * share)}%` : share >= 0.0005 ? `${(100 * share).toFixed(1)}%` : "0%";
  /** @type {(token: Token) => string} */
  const quoted = (token) => `“\u2068${token.text}\u2069”`; // isolated, since a sentence may mix scripts of both directions
  // The positions of the tokens to draw, for a pair of sentences optionally those of one segment (0 or 1).
  /** @type {(tokens: Token[], hideSpecial: boolean, segment?: number | null) => number[]} */
  const shownTokens = (tokens, hideSpecial, segment = null) => tokens.map((_, index) => index).filter((index) => !(hideSpecial && tokens[index].special) && (segment === null || tokens[index].segment === segment));
  /** @type {(token: Token) => string} */
  const sentenceOf = (token) => (token.segment === undefined ? "" : "AB"[token.segment]);

  // ---- colours
  /** @type {(text: string) => number[]} */
  const rgb = (text) => [1, 3, 5].map((start) => parseInt(text.slice(start, start + 2), 16));
  /** @type {(a: number[], b: number[], t: number) => number[]} */
  const mixed = (a, b, t) => a.map((value, channel) => Math.round(value + (b[channel] - value) * t));
  const screenColors = () => {
    const style = getComputedStyle(document.documentElement);
    return Object.fromEntries(["heat-0", "heat-1", "heat-2", "below", "above"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  };
  // 256 colours: of a share's square root, or, signed, of −1 to 1.
  /** @type {(colors: Record<string, string>, signed?: boolean) => number[][]} */
  const ramp = (colors, signed = false) => {
    const [low, middle, high] = (signed ? ["below", "heat-0", "above"] : ["heat-0", "heat-1", "heat-2"]).map((name) => rgb(colors[name]));
    return Array.from({ length: 256 }, (_, level) => level < 128 ? mixed(low, middle, level / 127.5) : mixed(middle, high, level / 127.5 - 1));
  };
  /** @type {(canvas: HTMLCanvasElement, rows: number, columns: number, level: Level, colors: number[][]) => void} */
  const paintCells = (canvas, rows, columns, level, colors) => {
    canvas.width = Math.max(columns, 1);
    canvas.height = Math.max(rows, 1);
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")), image = context.createImageData(canvas.width, canvas.height);
    for (let row = 0, at = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++, at += 4) {
        const [red, green, blue] = colors[level(row, column)];
        image.data[at] = red; image.data[at + 1] = green; image.data[at + 2] = blue; image.data[at + 3] = 255;
      }
    }
    context.putImageData(image, 0, 0);
  };
  const levelOf = (share) => Math.round(255 * Math.sqrt(Math.min(Math.max(share, 0), 1)));
  const signedLevel = (value) => Math.round(127.5 + 127.5 * Math.sign(value) * Math.sqrt(Math.min(Math.abs(value), 1)));
  // The same cells as vector paths, one per colour.
  /** @type {(rows: number, columns: number, level: Level, cell: number[], colors: number[][]) => SVGElement[]} */
  const cellPaths = (rows, columns, level, cell, colors) => {
    const paths = new Map();
    const [width, height] = cell, size = (number) => Number(number.toFixed(2));
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const key = level(row, column) & ~3;
        paths.set(key, `${paths.get(key) || ""}M${size(column * width)} ${size(row * height)}h${size(width)}v${size(height)}h${-size(width)}z`);
      }
    }
    return [...paths].map(([key, d]) => svgMake("path", { d, fill: `rgb(${colors[key].join(",")})` }));
  };
  /** @type {(signed: boolean) => number[][]} */
  const paperRamp = (signed) => ramp(lightColors(), signed);

  // ---- text
  const ruler = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  /** @type {(text: string, size: number) => number} */
  const measured = (text, size) => { ruler.font = `${size}px ${FONT}`; return ruler.measureText(text).width; };
  /** @type {(text: string, room: number, size: number) => string} */
  const fitted = (text, room, size) => {
    if (measured(text, size) <= room) return text;
    const characters = [...text];
    while (characters.length > 1 && measured(characters.join("") + "…", size) > room) characters.pop();
    return characters.join("") + "…";
  };
  /** @type {(text: string, attributes: Record<string, any>, size?: number, anchor?: string) => SVGElement} */
  const label = (text, attributes, size = 14, anchor = "start") => {
    const element = svgMake("text", { "font-size": size, "text-anchor": anchor, fill: "var(--ink)", "dominant-baseline": "central", ...attributes });
    element.textContent = text;
    return element;
  };

  // ---- token to token: lines whose width and opacity carry the weight; one token isolates its row or column
  const lines = (host, tell) => {
    const svg = svgMake("svg", { class: "lines", role: "group", "font-family": FONT });
    host.replaceChildren(svg);
    const drawn = svgMake("g", { fill: "none", stroke: "var(--above)", "aria-hidden": "true" });
    let sides = [], heads = [], columns = 0, active = null, pinned = null, geometry = {};

    const build = () => {
      const width = Math.min(Math.max(host.clientWidth - 2, 260), 660), margin = width > 470 ? 46 : 4;
      const texts = sides.flatMap((side) => side.shown.map((index) => side.tokens[index].text));
      const longest = texts.reduce((most, text) => Math.max(most, measured(text, 15)), 30);
      const room = Math.min(Math.ceil(longest) + 8, (width - 2 * margin) * 0.36);
      const height = 30 + ROW * Math.max(...sides.map((side) => side.shown.length), 1);
      geometry = { left: margin + room + 4, right: width - margin - room - 4, width, height, margin, room };
      svg.replaceChildren();
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("width", String(width));
      svg.setAttribute("height", String(height));
      const fits = geometry.right + 4 + measured(sides[1].title, 12) <= width;
      svg.append(label(sides[0].title, { x: geometry.left - 4, y: 12, fill: "var(--soft)" }, 12, "end"), label(sides[1].title, { x: fits ? geometry.right + 4 : width - 1, y: 12, fill: "var(--soft)" }, 12, fits ? "start" : "end"), drawn);
      for (const [number, side] of sides.entries()) {
        side.groups = new Map();
        side.shown.forEach((index, row) => {
          const y = 30 + ROW * row, x = number ? geometry.right : margin;
          const group = svgMake("g", { class: "token", role: "button", tabindex: row ? -1 : 0, "data-side": number, "data-index": index, "aria-label": `${side.role} ${index + 1} of ${side.tokens.length}: ${side.tokens[index].text}${side.tokens[index].segment === undefined ? "" : `, sentence ${sentenceOf(side.tokens[index])}`}` });
          const begins = sentenceOf(side.tokens[index]) !== (row ? sentenceOf(side.tokens[side.shown[row - 1]]) : "") ? sentenceOf(side.tokens[index]) : "";
          const text = label(fitted(side.tokens[index].text, room - (begins ? 22 : 6), 15), { x: number ? x + 5 : x + room - 1, y: y + ROW / 2, ...(side.tokens[index].special ? { fill: "var(--soft)" } : {}) }, 15, number ? "start" : "end");
          const title = svgMake("title", {});
          title.textContent = side.tokens[index].text;
          const share = label("", { x: number ? width - margin + 8 : margin - 8, y: y + ROW / 2, fill: "var(--soft)" }, 12, number ? "start" : "end");
          group.append(svgMake("rect", { x, y: y + 1, width: room + 4, height: ROW - 2, rx: 4, fill: "var(--above)", "fill-opacity": 0 }), title, text, share);
          if (begins) { // a line and a letter where a sentence of a pair begins
            if (row) svg.append(svgMake("line", { x1: x, x2: x + room + 4, y1: y, y2: y, stroke: "var(--control)" }));
            svg.append(label(begins, { x: number ? x + room + 1 : x + 3, y: y + ROW / 2, fill: "var(--soft)", "font-weight": "bold", "aria-hidden": "true" }, 11, number ? "end" : "start"));
          }
          side.groups.set(index, group);
          svg.append(group);
        });
      }
    };
    const paint = () => {
      const paths = heads.map(() => Array(BINS).fill("")), places = sides.map((side) => new Map(side.shown.map((index, row) => [index, 30 + ROW * (row + 0.5)])));
      const least = active ? 0.001 : threshold();
      for (const [i, y1] of places[0]) {
        if (active?.side === 0 && active.index !== i) continue;
        for (const [j, y2] of places[1]) {
          if (active?.side === 1 && active.index !== j) continue;
          heads.forEach(({ shares }, which) => {
            const weight = shares[i * columns + j];
            const aside = (which - (heads.length - 1) / 2) * Math.min(3.2, (ROW - 6) / heads.length); // heads lie side by side
            if (weight >= least) paths[which][Math.min(BINS - 1, Math.floor(Math.sqrt(weight) * BINS))] += `M${geometry.left} ${y1 + aside}L${geometry.right} ${y2 + aside}`;
          });
        }
      }
      drawn.replaceChildren(...paths.flatMap((bins, which) => bins.flatMap((d, bin) => {
        const weight = ((bin + 0.5) / BINS) ** 2;
        return d ? [svgMake("path", { d, stroke: heads[which].color, "stroke-width": (0.6 + 5.5 * weight).toFixed(2), "stroke-opacity": Math.min((active ? 0.22 : 0.06) + weight, 0.95).toFixed(3) })] : [];
      })));
      for (const [number, side] of sides.entries()) {
        for (const [index, group] of side.groups) {
          const isActive = active?.side === number && active.index === index;
          const { share, color } = active && active.side !== number ? strongest((number ? active.index : index) * columns + (number ? index : active.index)) : { share: 0, color: "" };
          const rect = one("rect", group);
          if (color) rect.setAttribute("fill", color);
          rect.setAttribute("fill-opacity", share ? (0.06 + 0.5 * share).toFixed(3) : 0);
          rect.setAttribute("stroke", isActive ? "var(--ink)" : "none");
          if (geometry.margin > 10) group.lastChild.textContent = share >= 0.005 ? percent(share) : "";
          group.setAttribute("aria-pressed", String(pinned?.side === number && pinned.index === index));
        }
      }
    };
    const strongest = (at) => heads.map((head) => ({ share: head.shares[at], color: head.color })).reduce((best, head) => (head.share > best.share ? head : best));
    // The smallest weight to draw, so that there are at most MOST_LINES lines.
    const threshold = () => {
      const counts = new Uint32Array(256);
      for (const i of sides[0].shown) for (const j of sides[1].shown) for (const { shares } of heads) counts[levelOf(shares[i * columns + j])]++;
      let level = 255, sum = counts[255];
      while (level > 26 && sum + counts[level - 1] <= MOST_LINES) sum += counts[--level];
      return SQUARES[level] - 1e-7;
    };
    const summary = () => {
      if (!active) return "";
      const { side, index } = active, other = sides[1 - side], own = sides[side].tokens[index];
      const named = (head) => (heads.length > 1 ? ` (${head.name})` : "");
      const shares = heads.flatMap((head) => other.shown.map((at) => [`${quoted(other.tokens[at])}${named(head)}`, head.shares[(side ? at : index) * columns + (side ? index : at)]]));
      const top = shares.filter(([, share]) => share >= 0.005).sort((a, b) => b[1] - a[1]).slice(0, 5);
      const listed = top.map(([token, share]) => `${token} ${percent(share)}`).join(", ") || "no token shown";
      return side ? `${quoted(own)} is seen from ${listed}` : `${quoted(own)} sees ${listed}`;
    };
    const activate = (next) => {
      const before = active;
      active = next ?? pinned;
      if (before?.side === active?.side && before?.index === active?.index) return;
      paint();
      tell(summary(), active, pinned);
    };
    const pin = (next) => {
      pinned = pinned && next && pinned.side === next.side && pinned.index === next.index ? null : next;
      active = { side: -1, index: -1 };
      activate(pinned);
      tell(summary(), active, pinned, true);
    };
    const at = (event) => {
      const { side, index } = event.target?.closest(".token")?.dataset || {};
      return side === undefined ? null : { side: Number(side), index: Number(index) };
    };
    svg.addEventListener("pointerover", (event) => { if (event.pointerType !== "touch") activate(at(event)); });
    svg.addEventListener("pointerleave", () => activate(null));
    svg.addEventListener("focusin", (event) => activate(at(event)));
    svg.addEventListener("focusout", () => activate(null));
    svg.addEventListener("click", (event) => { const token = at(event); if (token) pin(token); });
    svg.addEventListener("keydown", (event) => {
      const from = at(event);
      if (!from) return;
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pin(from); return; }
      if (event.key === "Escape" && pinned) { event.stopPropagation(); pin(null); return; }
      const side = { ArrowLeft: 0, ArrowRight: 1 }[event.key] ?? from.side;
      const step = { ArrowUp: -1, ArrowDown: 1 }[event.key] ?? 0;
      if (side === from.side && !step) return;
      event.preventDefault();
      const { shown, groups } = sides[side];
      const row = Math.min(Math.max(sides[from.side].shown.indexOf(from.index) + step, 0), shown.length - 1);
      for (const group of groups.values()) group.setAttribute("tabindex", -1);
      const next = groups.get(shown[row]);
      next.setAttribute("tabindex", 0);
      next.focus();
    });
    new ResizeObserver(() => {
      if (sides.length && host.clientWidth && Math.min(Math.max(host.clientWidth - 2, 260), 660) !== geometry.width) { build(); paint(); }
    }).observe(host);

    return {
      svg,
      // titles: what stands above the two columns
      show({ queries, keys, hideSpecial, titles, name, segments = [null, null] }) {
        sides = [
          { tokens: queries, shown: shownTokens(queries, hideSpecial, segments[0]), title: titles[0], role: "query" },
          { tokens: keys, shown: shownTokens(keys, hideSpecial, segments[1]), title: titles[1], role: "key" },
        ];
        if (pinned && !sides[pinned.side].shown.includes(pinned.index)) pinned = null;
        active = pinned;
        svg.setAttribute("aria-label", name);
        build();
      },
      // The weights of one head, or several heads, each with its weights, colour and name.
      weigh(given, width) { heads = Array.isArray(given) ? given : [{ shares: given, color: "var(--above)", name: "" }]; columns = width; paint(); tell(summary(), active, pinned); },
      pinTo(side, index) { pinned = sides[side]?.shown.includes(index) ? { side, index } : null; active = pinned; },
      activate,
    };
  };

  // ---- a map: a row per query, a column per key
  const map = (host, tell) => {
    host.classList.add("attention-map");
    const heading = make("h4"), scroll = make("div", "", { class: "map-scroll", tabindex: 0, role: "img" }), grid = make("div", "", { class: "map-grid" });
    const columnLabels = svgMake("svg", { class: "columns", "font-family": FONT }), rowLabels = svgMake("svg", { class: "rows", "font-family": FONT });
    const body = make("div", "", { class: "cells" }), canvas = make("canvas"), mark = make("div", "", { class: "mark" });
    body.append(canvas, mark);
    grid.append(make("div", "", { class: "corner" }), columnLabels, rowLabels, body);
    scroll.append(grid);
    host.replaceChildren(heading, scroll);
    let now = null;
    const level = (row, column) => (now.signed ? signedLevel : levelOf)(now.shares[now.rows[row] * now.keys.length + now.columns[column]]);
    const labels = (size) => {
      const { queries, keys, rows, columns } = now, room = 84;
      const longest = (tokens, shown) => Math.min(Math.ceil(shown.reduce((most, index) => Math.max(most, measured(tokens[index].text, 12)), 12)) + 8, room);
      const [left, top] = [longest(queries, rows), longest(keys, columns)];
      const across = columns.map((index, column) => label(fitted(keys[index].text, top - 6, 12), { transform: `translate(${(column + 0.5) * size},${top - 4}) rotate(-90)` }, 12));
      const down = rows.map((index, row) => label(fitted(queries[index].text, left - 6, 12), { x: left - 5, y: (row + 0.5) * size }, 12, "end"));
      return { left, top, across, down };
    };
    const cellSize = () => {
      const { queries, rows, columns } = now;
      const left = Math.min(rows.reduce((most, index) => Math.max(most, measured(queries[index].text, 12)), 12) + 8, 84);
      return Math.max(14, Math.min(24, Math.floor((host.clientWidth - left - 2) / columns.length)));
    };
    const paint = () => {
      if (!now) return;
      const { rows, columns, queries, keys, shares } = now, size = cellSize(), { left, top, across, down } = labels(size);
      grid.style.gridTemplateColumns = `${left}px ${columns.length * size}px`;
      for (const [svg, width, height, texts] of [[columnLabels, columns.length * size, top, across], [rowLabels, left, rows.length * size, down]]) {
        svg.setAttribute("width", width);
        svg.setAttribute("height", height);
        svg.replaceChildren(...texts);
      }
      canvas.style.width = `${columns.length * size}px`;
      canvas.style.height = `${rows.length * size}px`;
      paintCells(canvas, rows.length, columns.length, level, ramp(screenColors(), now.signed));
      let most = -1, where = [0, 0];
      for (const i of rows) for (const j of columns) if (Math.abs(shares[i * keys.length + j]) > most) { most = Math.abs(shares[i * keys.length + j]); where = [i, j]; }
      const strongest = most < 0 ? "" : `; strongest: ${quoted(queries[where[0]])} to ${quoted(keys[where[1]])}, ${percent(most)}`;
      scroll.setAttribute("aria-label", `${now.title}: ${rows.length} queries by ${columns.length} keys${strongest}`);
    };
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      const row = Math.floor((event.clientY - box.top) / box.height * now.rows.length), column = Math.floor((event.clientX - box.left) / box.width * now.columns.length);
      if (row in now.rows && column in now.columns) tell({ query: now.rows[row], key: now.columns[column] });
    });
    canvas.addEventListener("pointerleave", () => tell(null));
    new ResizeObserver(paint).observe(host);
    return {
      host, scroll, repaint: paint,
      show({ title, queries, keys, hideSpecial, shares, signed = false, segments = [null, null] }) {
        now = { title, queries, keys, shares, signed, rows: shownTokens(queries, hideSpecial, segments[0]), columns: shownTokens(keys, hideSpecial, segments[1]) };
        heading.textContent = title;
        paint();
      },
      markRow(query) {
        const row = now?.rows.indexOf(query) ?? -1;
        mark.hidden = row < 0;
        if (row >= 0) Object.assign(mark.style, { top: `${100 * row / now.rows.length}%`, height: `${100 / now.rows.length}%` });
      },
      share: (query, key) => now.shares[query * now.keys.length + key],
      // The map as vector cells and labels, and its size.
      drawing() {
        const size = cellSize(), { left, top, across, down } = labels(size), group = svgMake("g", {});
        const part = (x, y, children) => { const inner = svgMake("g", { transform: `translate(${x},${y})` }); inner.append(...children); group.append(inner); };
        group.append(label(now.title, { x: 0, y: 8, "font-weight": "bold" }, 13));
        part(left, 18, across);
        part(0, 18 + top, down);
        part(left, 18 + top, cellPaths(now.rows.length, now.columns.length, level, [size, size], paperRamp(now.signed)));
        return { group, width: left + now.columns.length * size, height: 18 + top + now.rows.length * size };
      },
    };
  };

  // ---- all heads small: cells merged by their largest weight where there are more than fit
  /** @type {(bytes: Uint8Array, start: number, rows: number[], columns: number[], width: number, most: number) => Cells} */
  const reduced = (bytes, start, rows, columns, width, most) => {
    const height = Math.min(rows.length, most), across = Math.min(columns.length, most), cells = new Uint8Array(height * across);
    rows.forEach((i, row) => {
      const to = Math.floor(row * height / rows.length) * across, from = start + i * width;
      columns.forEach((j, column) => {
        const cell = to + Math.floor(column * across / columns.length);
        if (bytes[from + j] > cells[cell]) cells[cell] = bytes[from + j];
      });
    });
    return { cells, height, across };
  };

  // The same for changes from −1 to 1: a merged cell shows the largest change among its cells.
  /** @type {(values: Float32Array, rows: number[], columns: number[], width: number, most: number) => Cells} */
  const reducedSigned = (values, rows, columns, width, most) => {
    const height = Math.min(rows.length, most), across = Math.min(columns.length, most), cells = new Uint8Array(height * across).fill(128);
    rows.forEach((i, row) => columns.forEach((j, column) => {
      const cell = Math.floor(row * height / rows.length) * across + Math.floor(column * across / columns.length), level = signedLevel(values[i * width + j]);
      if (Math.abs(level - 127.5) > Math.abs(cells[cell] - 127.5)) cells[cell] = level;
    }));
    return { cells, height, across };
  };

  // Maps that stand side by side scroll together.
  const scrollTogether = (boxes) => {
    for (const box of boxes) {
      box.addEventListener("scroll", () => {
        for (const other of boxes) if (other !== box) { other.scrollLeft = box.scrollLeft; other.scrollTop = box.scrollTop; }
      });
    }
  };
  /** @type {(parts: Drawing[], width: number) => string} */
  const drawingOf = (parts, width) => {
    const svg = svgMake("svg", { xmlns: "http://www.w3.org/2000/svg", "font-family": FONT });
    let x = 0, y = 0, line = 0, widest = 0;
    for (const part of parts) {
      if (x && x + part.width > width) { x = 0; y += line + 20; line = 0; }
      part.group.setAttribute("transform", `translate(${x},${y})`);
      svg.append(part.group);
      x += part.width + 20;
      line = Math.max(line, part.height);
      widest = Math.max(widest, x - 20);
    }
    const size = { width: Math.ceil(widest), height: Math.ceil(y + line) };
    svg.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
    for (const [key, value] of Object.entries(size)) svg.setAttribute(key, String(value));
    return new XMLSerializer().serializeToString(svg);
  };
  /** @type {(svg: SVGElement) => Drawing} */
  const copied = (svg) => {
    const group = svgMake("g", {}), copy = /** @type {SVGElement} */ (svg.cloneNode(true));
    for (const one of all("[tabindex],[role]", copy)) for (const name of ["tabindex", "role", "class", "aria-label", "aria-pressed"]) one.removeAttribute(name);
    group.append(...copy.childNodes);
    return { group, width: Number(svg.getAttribute("width")), height: Number(svg.getAttribute("height")) };
  };
  return { unpack, weightsOf, signedOf, signedLevel, valueWeighted, percent, quoted, shownTokens, lines, map, reduced, reducedSigned, ramp, screenColors, paperRamp, paintCells, cellPaths, label, fitted, measured, scrollTogether, drawingOf, copied, FONT };
})();
