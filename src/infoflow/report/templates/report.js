"use strict";
// The page reads well without this script; it adds live charts, highlighting, the head panel, downloads and a shareable address.
page.ready(() => {
  const { all, one, make, svgMake, state, readState, remember, repaints, save, saveSvg, check, choices } = page;

  // ---- charts, drawn when they come near the screen
  const views = new Map(); // section → Vega views
  const chartConfig = JSON.parse(one("#chart-config").textContent);
  const draw = async (panel) => {
    if (panel.dataset.drawn) return;
    panel.dataset.drawn = "yes";
    const spec = JSON.parse(new TextDecoder().decode(await attention.unpack(one(".spec", panel).textContent)));
    const target = one(".live", panel);
    // `ast` keeps Vega from compiling code at run time, which the page's security policy forbids.
    const { view } = await vegaEmbed(target, spec, { config: chartConfig, mode: "vega-lite", actions: false, renderer: "svg", ast: true, defaultStyle: false, tooltip: { disableDefaultStyle: true } });
    panel.classList.add("alive");
    land();
    target.firstElementChild?.setAttribute("aria-hidden", "true");
    const section = panel.closest("section");
    if (!views.has(section)) views.set(section, []);
    views.get(section).push(view);
    for (const listener of page.drawn) listener(view, section);
    view.addEventListener("mouseover", (_, item) => {
      if (Number.isInteger(item?.datum?.layer)) atLayer(section, item.datum.layer);
      const series = item?.datum?.series;
      if (!series) return;
      const parts = series.split(" – "); // a pair of models, or one side of a model
      if (parts.length === 1 && isKey(section, series)) highlight(section, series);
      else if (isKey(section, parts[0]) && !isKey(section, parts[1])) highlight(section, parts[0]);
      else light(view, series);
    });
    view.addEventListener("mouseout", () => { highlight(section, pinned()); atLayer(section); });
    light(view, pinned());
    const slider = one("input.replay", panel.closest("figure"));
    if (slider) replay(view, slider);
    const set = one("select.shown-set", panel.closest("figure"));
    if (set) onSet(view, set.value);
  };
  // ---- a jump lands on its heading, whatever grows above it meanwhile
  let landing = null, landed = 0, moving = false, ours = false, ourUntil = 0;
  const land = () => {
    if (moving || !landing) return; // a second scroll would add to a smooth one
    const before = scrollY;
    landing.scrollIntoView({ behavior: "instant" });
    if (scrollY !== before) ourUntil = performance.now() + 150;
  };
  addEventListener("scroll", () => { if (!moving) ours = performance.now() < ourUntil; moving = true; }, { passive: true });
  addEventListener("scrollend", () => { moving = false; if (ours) land(); else landing = null; }); // the reader scrolled, so the page must not scroll back
  const jumpTo = (place) => {
    landing = place;
    ourUntil = performance.now() + 500;
    clearTimeout(landed);
    landed = setTimeout(() => { landing = null; }, 4000);
  };
  for (const type of ["wheel", "touchstart", "keydown", "pointerdown"]) addEventListener(type, () => { landing = null; }, { passive: true, capture: true });
  addEventListener("click", (event) => {
    const link = event.target?.closest?.('a[href^="#"]');
    const place = link && document.getElementById(decodeURIComponent(link.hash.slice(1).split(";")[0]));
    if (place) { page.reveal(place); jumpTo(place); }
  });
  // A chart is as high as its still picture at full size: that room is kept until it is drawn.
  for (const svg of all(".panel > .static > svg")) {
    const height = Number(svg.getAttribute("viewBox")?.split(" ")[3]);
    if (height) svg.style.height = `${height}px`;
  }
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { watcher.unobserve(entry.target); draw(entry.target); }
  }, { rootMargin: "400px" });

  // ---- a slider, which all charts of its figure follow
  const replay = (view, slider) => {
    try { view.signal("frame", Number(slider.value)).runAsync(); } catch { /* a chart of another figure in the section */ }
  };
  const sliders = all("input.replay").map((slider) => {
    const { labels, state: key } = slider.dataset;
    const names = labels.split("|");
    const paint = () => {
      if (names[state[key]] !== undefined) slider.value = state[key];
      one("output", slider.parentElement).textContent = names[slider.value];
      for (const view of views.get(slider.closest("section")) || []) replay(view, slider);
    };
    slider.addEventListener("input", () => {
      remember({ [key]: slider.value, place: slider.closest("figure").id });
      paint();
    });
    return paint;
  });

  // ---- the sentences on which losses were measured, chosen for all charts of a section
  const onSet = (view, set) => {
    try { view.signal("shown", Number(set)).runAsync(); } catch { /* a chart of one set */ }
  };
  const setChoices = all("select.shown-set").map((choice) => {
    const paint = () => {
      const wanted = state.sentences || "0";
      choice.value = [...choice.options].some((option) => option.value === wanted) ? wanted : "0";
      for (const view of views.get(choice.closest("section")) || []) onSet(view, choice.value);
    };
    choice.addEventListener("change", () => {
      remember({ sentences: choice.value === "0" ? "" : choice.value, place: choice.closest("figure").id });
      for (const repaint of setChoices) repaint();
    });
    return paint;
  });

  // ---- one model highlighted in every figure of a section
  const pinned = () => state.model || "";
  const light = (view, series) => {
    try { view.signal("highlight", series).runAsync(); } catch { /* a chart without lines */ }
  };
  const isKey = (section, series) => all(".key[data-series]", section).some((key) => key.dataset.series === series);
  const highlight = (section, series) => {
    const shown = isKey(section, series) ? series : "";
    for (const view of views.get(section) || []) light(view, shown);
    for (const grids of all(".grids", section)) {
      grids.classList.toggle("dim", Boolean(shown));
      for (const table of all("table.heads", grids)) table.classList.toggle("lit", table.dataset.grid.startsWith(shown + "/"));
    }
  };
  // One layer, and in head maps one head, marked in every figure of a section.
  const atLayer = (section, layer = -1, head = -1) => {
    for (const view of views.get(section) || []) {
      try { view.signal("at_layer", layer).runAsync(); } catch { /* a chart without layers */ }
    }
    for (const button of all("table.heads button", section)) {
      const same = Number(button.dataset.layer) === layer;
      button.classList.toggle("at-layer", same);
      button.classList.toggle("at-head", same && Number(button.dataset.head) === head);
    }
  };
  const showPinned = () => {
    for (const key of all(".key[data-series]")) key.setAttribute("aria-pressed", String(key.dataset.series === pinned()));
    for (const section of all("section.question")) highlight(section, pinned());
  };
  for (const key of all(".key[data-series]")) {
    const section = key.closest("section");
    key.addEventListener("mouseenter", () => highlight(section, key.dataset.series));
    key.addEventListener("mouseleave", () => highlight(section, pinned()));
    key.addEventListener("click", () => {
      remember({ model: pinned() === key.dataset.series ? "" : key.dataset.series });
      showPinned();
    });
  }

  // ---- downloads: the static picture, in light colours
  const pictureOf = (figure) => {
    let top = 0, width = 0;
    // A chosen measure without static pictures is exported as it is drawn.
    const still = all(".static > svg", figure).filter((svg) => !svg.closest(".away"));
    const shown = still.length ? still : all(".metric:not(.away) .live svg", figure);
    const parts = shown.map((svg) => {
      const [, , w, h] = svg.getAttribute("viewBox").split(" ").map(Number);
      const copy = svg.cloneNode(true);
      copy.setAttribute("y", top); copy.setAttribute("width", w); copy.setAttribute("height", h);
      top += h + 16; width = Math.max(width, w);
      return new XMLSerializer().serializeToString(copy);
    });
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${top}" viewBox="0 0 ${width} ${top}">${parts.join("")}</svg>`;
  };
  for (const button of all("[data-download]")) {
    const id = button.dataset.download;
    button.addEventListener("click", () => saveSvg(id, pictureOf(document.getElementById(id))));
  }

  // ---- the head map
  const shown = (value, low = null, high = null) => {
    if (value === null || value === undefined) return "–";
    const half = low === null || high === null ? 0 : (high - low) / 2;
    const places = half > 0 ? Math.min(Math.max(-Math.floor(Math.log10(half)) + (half / 10 ** Math.floor(Math.log10(half)) < 2 ? 1 : 0), 0), 4) : 2;
    return value.toFixed(places).replace(/^-(?=0\.?0*$)/, "").replace("-", "−");
  };

  // Numbers in steps of two bytes between limits; 65535 is a missing one.
  const unfold = (cells, [low, high]) => {
    for (const key of ["value", "low", "high", "baseline"]) {
      if (typeof cells[key] !== "string") { cells[key] = []; continue; }
      const bytes = Uint8Array.from(atob(cells[key]), (character) => character.charCodeAt(0));
      const steps = Array.from({ length: bytes.length / 2 }, (_, place) => bytes[2 * place] + 256 * bytes[2 * place + 1]);
      cells[key] = steps.map((step) => (step === 65535 ? null : low + (high - low) * step / 65534));
    }
  };

  const headMap = (box) => {
    const figure = box.closest("figure");
    const map = JSON.parse(one(".map-data", box).textContent);
    for (const own of map.grids) for (const kind of map.statistics) if (own.statistics[kind.id]) unfold(own.statistics[kind.id], kind.limits);
    const tables = all("table.heads", box);
    const panel = one(".head-panel", box);
    const statistic = () => map.statistics.find((s) => s.id === state.statistic) || map.statistics[0];
    const view = () => (map.untrained && ["untrained", "change"].includes(state.view) ? state.view : "trained");
    const seed = () => (map.seeds.map(String).includes(state.seed) ? Number(state.seed) : map.seeds[0]);
    const grid = (id, trained) => map.grids.find((g) => g.id === id && g.trained === trained && g.seed === seed()) || map.grids.find((g) => g.id === id && g.trained === trained);
    const cells = (id, trained, name = statistic().id) => grid(id, trained)?.statistics[name];
    // The number that the colour shows: the value, or its lead over the control; trained minus untrained on request.
    const amountAt = (id, trained, index) => {
      const own = cells(id, trained), value = own?.value[index] ?? null;
      return value !== null && statistic().margin ? value - (own.baseline[index] ?? NaN) : value;
    };
    const valueAt = (id, index) => {
      const own = amountAt(id, view() !== "untrained", index);
      if (view() !== "change") return own;
      const control = amountAt(id, false, index);
      return own === null || control === null ? null : own - control;
    };

    const paint = () => {
      const now = statistic(), change = view() === "change", signed = change || now.signed, top = change ? now.change : now.top;
      for (const table of tables) {
        const shape = grid(table.dataset.grid, true) || grid(table.dataset.grid, false);
        table.classList.toggle("signed", signed);
        for (const button of all("button", table)) {
          const { layer, head } = button.dataset;
          const value = valueAt(table.dataset.grid, layer * shape.heads + Number(head));
          button.classList.toggle("empty", value === null);
          button.style.setProperty("--v", value === null ? 0 : Math.max(signed ? -1 : 0, Math.min(1, value / top)));
          const text = value === null ? "not measured" : `${shown(value)}${now.unit ? " " + now.unit : ""}`;
          button.setAttribute("aria-label", `layer ${layer}, head ${head}: ${change ? "change in " : ""}${now.label} ${text}`);
          button.title = `layer ${layer}, head ${head}: ${text}`;
          button.toggleAttribute("aria-current", false);
          if (state.head === `${table.dataset.grid}/${layer}/${head}`) button.setAttribute("aria-current", "true");
        }
      }
      const scale = one(".scale", box);
      scale.classList.toggle("signed", signed);
      one("[data-scale=low]", scale).textContent = signed ? `−${top}` : "0";
      one("[data-scale=high]", scale).textContent = signed ? `+${top}` : String(top);
      one("[data-scale=label]", scale).textContent = `${now.label}${now.margin ? ": lead over the control" : ""}${now.unit ? ` (${now.unit})` : ""}${change ? ", trained minus untrained" : ""}`;
      one(".answer p", figure).textContent = now.sentence;
      for (const button of all("[data-statistic]", box)) check(button, button.dataset.statistic === now.id);
      for (const button of all("[data-view]", box)) check(button, button.dataset.view === view());
      const select = one("[data-seed]", box);
      if (select) select.value = String(seed());
      paintPanel();
    };
    // Below the row of grids that holds the chosen head.
    const placePanel = (table) => {
      const grids = all(".grid", box), own = table.closest(".grid");
      const row = grids.filter((other) => other.offsetTop === own.offsetTop);
      if (row.at(-1).nextElementSibling !== panel) row.at(-1).after(panel);
    };
    const paintPanel = () => {
      const match = /^(.*)\/(\d+)\/(\d+)$/.exec(state.head || "");
      const own = match && grid(match[1], true);
      panel.hidden = !own;
      if (!own) return;
      const [, id, layer, head] = match;
      placePanel(tables.find((table) => table.dataset.grid === id));
      const index = Number(layer) * own.heads + Number(head);
      panel.replaceChildren();
      panel.setAttribute("aria-label", `layer ${layer}, head ${head}`);
      const close = make("button", "×", { type: "button", class: "close", "aria-label": "Close the panel" });
      close.addEventListener("click", () => choose(null));
      const seeds = map.seeds.length > 1 ? `, seed ${own.seed}` : "";
      panel.append(close, make("h4", `${own.label}${seeds}: ${own.kind}, layer ${layer}, head ${head}`));
      if (map.roles) {
        const held = own.roles[index] || [];
        panel.append(make("p", held.length ? `Roles: ${held.join(" · ")}` : "It holds none of the tested roles.", { class: "roles" }));
      }
      const table = make("table");
      const header = table.createTHead().insertRow();
      for (const title of ["statistic", "this head (95% interval)", "control", ...(map.untrained ? ["untrained"] : []), "among all heads of this kind"]) header.append(make("th", title, { scope: "col" }));
      const body = table.createTBody();
      for (const kind of map.statistics) {
        const data = own.statistics[kind.id];
        if (!data || data.value[index] === null || data.value[index] === undefined) continue;
        const row = body.insertRow();
        const [value, low, high, baseline] = ["value", "low", "high", "baseline"].map((key) => data[key][index]);
        const span = low === null || high === null ? "" : ` (${shown(low, low, high)} to ${shown(high, low, high)})`;
        const name = make("th", `${kind.label}${kind.unit ? ` (${kind.unit})` : ""}`, { scope: "row", title: kind.explanation });
        if (data.notes?.[index]) name.append(make("span", data.notes[index], { class: "note" }));
        row.append(name);
        row.append(make("td", shown(value, low, high) + span));
        row.append(make("td", `${shown(baseline)}, ${kind.control}`));
        if (map.untrained) row.append(make("td", shown(cells(id, false, kind.id)?.value[index])));
        const cell = row.insertCell();
        cell.append(strip(data.value, index, baseline, kind));
      }
      panel.append(table);
      if (map.examples[id]?.seed === own.seed) panel.append(examples(id, own, Number(layer), Number(head)));
      else if (map.examples[id]) panel.append(make("p", `Attention is drawn for seed ${map.examples[id].seed}.`, { class: "small" }));
    };
    // Every head of the grid as a thin tick, this one as a dot, the control dashed.
    const strip = (values, index, baseline, kind) => {
      const most = kind.margin ? 1 : kind.top, least = kind.signed ? -most : 0;
      const place = (value) => 2 + 96 * Math.min(Math.max((value - least) / (most - least), 0), 1) + "%";
      const known = values.filter((value) => value !== null);
      const rank = known.filter((value) => value > values[index]).length + 1;
      const picture = svgMake("svg", { class: "strip", role: "img", "aria-label": `rank ${rank} of ${known.length}` });
      const line = (value, y1, y2, attributes) => picture.append(svgMake("line", { x1: place(value), x2: place(value), y1, y2, ...attributes }));
      picture.append(svgMake("line", { x1: "2%", x2: "98%", y1: 10, y2: 10, stroke: "var(--rule)" }));
      for (const value of known) line(value, 6, 14, { stroke: "var(--control)", "stroke-opacity": 0.5 });
      if (baseline !== null) line(baseline, 1, 19, { stroke: "var(--control)", "stroke-width": 1.5, "stroke-dasharray": "3 2" });
      picture.append(svgMake("circle", { cx: place(values[index]), cy: 10, r: 5, fill: "var(--ink)" }));
      return picture;
    };
    // ---- the head's attention on its most telling sentences
    const examples = (id, own, layer, head) => {
      const host = make("div", "", { class: "telling" }), all = map.examples[id], order = all.order[layer * own.heads + head];
      const wanted = order.findIndex(([number]) => String(all.sentences[number].id) === state.sentence);
      const chosen = order[Math.max(wanted, 0)]?.[0];
      if (chosen === undefined) return host;
      const picker = make("div", "", { class: "sentences-list", role: "radiogroup", "aria-label": "Sentence" });
      for (const [number, confidence] of order) {
        const sentence = all.sentences[number];
        const button = make("button", "", { type: "button", role: "radio", "data-sentence": sentence.id });
        button.append(make("bdi", sentence.text), make("span", confidence.toFixed(2), { class: "note" }));
        check(button, number === chosen);
        picker.append(button);
      }
      choices(picker, (button) => {
        remember({ sentence: button.dataset.sentence });
        paintPanel();
        one(".sentences-list [aria-checked=true]", panel)?.focus();
      });
      const lines = make("div", "", { class: "lines-scroll" }), status = make("p", "", { class: "small", role: "status" }), row = make("div", "", { class: "maps-row" });
      host.append(make("h5", "Its most telling sentences, by its confidence in them"), picker, lines, status, row);
      drawExample(id, own, layer, head, chosen, { lines, status, row });
      return host;
    };
    const blocks = new Map();
    const drawExample = async (id, own, layer, head, chosen, { lines, status, row }) => {
      if (!blocks.has(id)) blocks.set(id, attention.unpack(one(`[data-examples="${id}"]`, box).textContent));
      const bytes = await blocks.get(id), sentence = map.examples[id].sentences[chosen];
      if (!lines.isConnected) return;
      let start = 0;
      for (const other of map.examples[id].sentences.slice(0, chosen)) start += sizeOf(other, own).all;
      const size = sizeOf(sentence, own), number = layer * own.heads + head, cells = sentence.queries.length * sentence.keys.length;
      const part = (from, length) => bytes.subarray(start + from, start + from + length);
      const weights = attention.weightsOf(part(number * cells, cells)), norms = Float32Array.from(part(size.weights + number * sentence.keys.length, sentence.keys.length));
      const shares = { attention: weights, "value-weighted": attention.valueWeighted(weights, norms) };
      const tokens = (list) => list.map(([text, special]) => ({ text, special: Boolean(special) }));
      const common = { queries: tokens(sentence.queries), keys: tokens(sentence.keys), hideSpecial: false };
      const maps = Object.entries(shares).map(([title, of]) => {
        const drawn = attention.map(make("div"), (at) => view.activate(at && { side: 0, index: at.query }));
        row.append(drawn.host);
        drawn.show({ ...common, title, shares: of });
        return drawn;
      });
      const view = attention.lines(lines, (text, active) => {
        status.textContent = text || "Hover over a token, or move to it with Tab and the arrow keys, to see its weights.";
        for (const drawn of maps) drawn.markRow(active?.side === 0 ? active.index : -1);
      });
      view.show({ ...common, titles: id.endsWith("/cross") ? ["decoder", "encoder"] : ["looks", "is looked at"], name: "attention from token to token" });
      view.weigh(weights, sentence.keys.length);
    };
    const sizeOf = (sentence, own) => {
      const heads = own.layers * own.heads, cells = sentence.queries.length * sentence.keys.length;
      const weights = heads * cells, norms = heads * sentence.keys.length;
      return { weights, norms, all: weights + norms };
    };

    const choose = (address, focus = false) => {
      remember({ head: address, ...(address ? { place: figure.id } : {}) });
      paint();
      if (address && focus) panel.focus({ preventScroll: false });
    };

    for (const table of tables) {
      table.addEventListener("mouseover", (event) => {
        const { layer, head } = event.target?.closest("button")?.dataset || {};
        if (layer !== undefined) atLayer(box.closest("section"), Number(layer), Number(head));
      });
      table.addEventListener("mouseleave", () => atLayer(box.closest("section")));
      table.addEventListener("click", (event) => {
        const button = event.target?.closest("button");
        if (button) choose(`${table.dataset.grid}/${button.dataset.layer}/${button.dataset.head}`, event.detail === 0);
      });
      table.addEventListener("keydown", (event) => {
        const step = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
        const from = event.target?.closest("button");
        if (!step || !from) return;
        event.preventDefault();
        const to = one(`button[data-layer="${Number(from.dataset.layer) + step[0]}"][data-head="${Number(from.dataset.head) + step[1]}"]`, table);
        if (!to) return;
        from.tabIndex = -1;
        to.tabIndex = 0;
        to.focus();
      });
    }
    panel.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      const current = one('table.heads button[aria-current="true"]', box);
      choose(null);
      current?.focus();
    });
    for (const group of all("[role=radiogroup]", box)) {
      choices(group, (button) => {
        remember(button.dataset.statistic ? { statistic: button.dataset.statistic } : { view: button.dataset.view });
        paint();
      });
    }
    // The map's numbers as a table; they are on the page already, so the file is made only on request.
    one("[data-csv]", figure)?.addEventListener("click", (event) => {
      const harmless = (value) => (typeof value === "string" && /^([=@\t\r]|[+-](?![\d.]+$))/.test(value) ? `'${value}` : value); // so that no spreadsheet runs it as a formula
      const quoted = (value) => (/[",\n\r]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value);
      const field = (value) => (value === null || value === undefined ? "" : quoted(harmless(value)));
      const lines = [["model", "stack", "kind", "seed", "trained", "layer", "head", "statistic", "unit", "note", "value", "low", "high", "baseline"]];
      for (const own of map.grids) {
        for (const kind of map.statistics) {
          const data = own.statistics[kind.id], digits = (value) => (value === null || value === undefined ? "" : Number(value.toPrecision(4)));
          data?.value.forEach((value, index) => {
            if (value === null) return;
            const numbers = ["value", "low", "high", "baseline"].map((key) => digits(data[key][index]));
            lines.push([own.label, ...own.id.split("/").slice(-2), own.seed, own.trained, Math.floor(index / own.heads), index % own.heads, kind.label, kind.unit, data.notes?.[index], ...numbers]);
          });
        }
      }
      event.preventDefault();
      save("head-map.csv", lines.map((line) => line.map(field).join(",")).join("\n") + "\n", "text/csv");
    });
    one("[data-seed]", box)?.addEventListener("change", (event) => { remember({ seed: event.target.value }); paint(); });
    repaints.push(paintPanel);
    return paint;
  };

  // ---- maps: a slider through the layers, the same dots in each
  const MARKS = {
    circle: "M-11 0a11 11 0 1 0 22 0a11 11 0 1 0-22 0Z", square: "M-9.7-9.7H9.7V9.7H-9.7Z", triangle: "M0-12L11.5 9H-11.5Z",
    diamond: "M0-13L13 0L0 13L-13 0Z", cross: "M-4.4-12H4.4V-4.4H12V4.4H4.4V12H-4.4V4.4H-12V-4.4H-4.4Z",
  };
  const maps = (box) => {
    const data = JSON.parse(one(".maps-data", box).textContent);
    const slider = one("input[type=range]", box);
    const section = box.closest("section");
    const dots = all(".space", box).map((space) => {
      const own = data.spaces[space.dataset.space];
      const stage = one(".stage", space);
      const hollow = new Set(own.hollow);
      return own.group.map((group, point) => {
        const { color, shape } = data.groups[group];
        const look = hollow.has(point) ? { fill: "var(--paper)", stroke: color, "stroke-width": 5 } : { fill: color, "fill-opacity": own.strength[point] };
        const dot = svgMake("path", { d: MARKS[shape], ...look });
        const title = svgMake("title", {});
        title.textContent = own.titles[point];
        dot.append(title);
        stage.append(dot);
        return dot;
      });
    });
    const layer = () => {
      const wanted = state.layer === undefined ? NaN : Number(state.layer);
      return data.layers.includes(wanted) ? wanted : data.layers.at(-1);
    };
    const paint = () => {
      const now = layer(), index = data.layers.indexOf(now);
      slider.value = now;
      one("output", box).textContent = now;
      dots.forEach((own, number) => {
        const places = data.spaces[number].places[index];
        own.forEach((dot, point) => { dot.style.transform = `translate(${places[2 * point]}px,${places[2 * point + 1]}px)`; });
      });
      for (const cell of all(".strip g[data-layer]", box)) cell.classList.toggle("now", Number(cell.dataset.layer) === now);
    };
    const choose = (chosen) => {
      remember({ layer: String(chosen), place: box.closest("figure").id });
      for (const repaint of paints) repaint();
      atLayer(section, Number(chosen));
    };
    slider.addEventListener("input", () => choose(slider.value));
    box.addEventListener("click", (event) => {
      const cell = event.target?.closest(".strip g[data-layer]");
      if (cell) choose(cell.dataset.layer);
    });
    return paint;
  };

  // ---- maps of several measures: one at a time, all of them on paper
  const metrics = (box) => {
    const buttons = all("button[data-metric]", box);
    const groups = all(".metric", box);
    const key = box.dataset.key || "metric"; // figures with a choice of their own have their own key in the address
    const paint = () => {
      const wanted = groups.find((group) => group.dataset.metric === state[key]) || groups[0];
      for (const group of groups) group.classList.toggle("away", group !== wanted);
      for (const button of buttons) check(button, button.dataset.metric === wanted.dataset.metric);
    };
    for (const group of all("[role=radiogroup]", box)) {
      choices(group, (button) => {
        remember({ [key]: button.dataset.metric, place: box.closest("figure").id });
        paint();
      });
    }
    return paint;
  };

  page.atLayer = atLayer;

  // ---- start, and follow the address
  const paints = [...page.paints, ...sliders, ...setChoices, ...all("[data-map]").map(headMap), ...all("[data-maps]").map(maps), ...all("[data-metrics]").map(metrics)];
  const follow = (jump) => {
    readState();
    for (const paint of paints) paint();
    showPinned();
    const place = state.place && document.getElementById(state.place);
    const folded = place && page.reveal(place);
    if (jump && place) jumpTo(place);
    if (jump && place && (folded || location.hash.includes(";"))) place.scrollIntoView();
  };
  for (const panel of all(".panel")) if (one(".spec", panel)) watcher.observe(panel);
  addEventListener("hashchange", () => follow(true));
  follow(true);
});
