"use strict";
// What every page of infoflow shares: elements, the address, light and dark, downloads.
const page = (() => {
  const root = document.documentElement;
  root.classList.add("js");
  /** @type {(selector: string, from?: ParentNode) => any[]} */
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  /** @type {(selector: string, from?: ParentNode) => any} */
  const one = (selector, from = document) => from.querySelector(selector);
  /** @type {<T extends keyof HTMLElementTagNameMap>(tag: T, text?: string | number, attributes?: Record<string, any>) => HTMLElementTagNameMap[T]} */
  const make = (tag, text = "", attributes = {}) => {
    const element = document.createElement(tag);
    if (text) element.textContent = String(text);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  /** @type {(tag: string, attributes: Record<string, any>) => SVGElement} */
  const svgMake = (tag, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };

  // ---- the address keeps the state: #figure;model=…;statistic=…;metric=…;view=…;seed=…;head=…;layer=…;sentences=…
  /** @type {Record<string, string>} */
  const state = { place: "" };
  const readState = (otherwise = "") => {
    const [place, ...pairs] = (location.hash || otherwise).slice(1).split(";");
    for (const key of Object.keys(state)) delete state[key];
    state.place = safeDecode(place);
    for (const pair of pairs) {
      const [key, value = ""] = pair.split("=");
      state[key] = safeDecode(value);
    }
  };
  const safeDecode = (text) => {
    try { return decodeURIComponent(text); } catch { return ""; }
  };
  /** @type {(changes: Record<string, string | null | undefined>) => void} */
  const remember = (changes) => {
    for (const [key, value] of Object.entries(changes)) {
      if (value === "" || value === null || value === undefined) delete state[key]; else state[key] = value;
    }
    const pairs = Object.entries(state).filter(([key]) => key !== "place").map(([key, value]) => `${key}=${encodeURIComponent(value)}`);
    const hash = "#" + [encodeURIComponent(state.place || ""), ...pairs].join(";");
    try { history.replaceState(null, "", hash === "#" ? location.pathname : hash); } catch { /* some browsers forbid it on file: */ }
  };

  // ---- light and dark
  const stored = (() => { try { return localStorage.getItem("infoflow-theme"); } catch { return null; } })();
  if (stored === "light" || stored === "dark") root.dataset.theme = stored;
  /** @type {(() => void)[]} */
  const repaints = []; // canvas drawings read colours once, so they must be drawn again
  one("#theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("infoflow-theme", root.dataset.theme); } catch { /* no storage: the choice lasts for this visit */ }
    for (const repaint of repaints) repaint();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const repaint of repaints) repaint(); });

  // ---- downloads, in light colours
  /** @type {(name: string, text: string, type: string) => void} */
  const save = (name, text, type) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const lightColors = () => {
    const before = root.dataset.theme;
    root.dataset.theme = "light";
    const style = getComputedStyle(root);
    const names = ["ink", "soft", "control", "grid", "paper", "below", "above"];
    for (let i = 0; style.getPropertyValue(`--series-${i}`); i++) names.push(`series-${i}`);
    for (let i = 0; i < 3; i++) names.push(`heat-${i}`);
    for (let i = 0; style.getPropertyValue(`--rank-${i}`); i++) names.push(`rank-${i}`);
    const colors = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    if (before) root.dataset.theme = before; else delete root.dataset.theme;
    return colors;
  };
  /** @type {(svg: string) => string} */
  const onPaper = (svg) => {
    const colors = lightColors();
    return svg.replace(/var\(--([a-z0-9-]+)\)/g, (whole, name) => colors[name] || whole);
  };
  const saveSvg = (name, svg) => save(`${name}.svg`, onPaper(svg), "image/svg+xml");

  // ---- choices: one button of a group is checked, arrow keys move along
  /** @type {(button: HTMLElement, on: boolean) => void} */
  const check = (button, on) => {
    button.setAttribute("aria-checked", String(on));
    button.tabIndex = on ? 0 : -1;
  };
  /** @type {(group: HTMLElement, chosen: (button: HTMLElement) => void) => void} */
  const choices = (group, chosen) => {
    group.addEventListener("click", (event) => {
      const button = event.target?.closest("button");
      if (button) chosen(button);
    });
    group.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const buttons = all("button", group).filter((button) => !button.hidden);
      const next = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
      next.click();
      next.focus();
    });
  };
  /** @type {((view: any, section: Element) => void)[]} */
  const drawn = []; // called for every chart that is drawn: (view, its section)
  /** @type {(() => void)[]} */
  const paints = []; // called whenever the address has changed
  // Runs what needs the whole page: at once, or when the figures of a large page are unpacked.
  let unpacked = null;
  /** @type {(run: () => void) => void} */
  const ready = (run) => {
    const figures = all(".packed-figure");
    if (figures.length) unpacked ||= Promise.all(figures.map(async (figure) => {
      const html = new TextDecoder().decode(await attention.unpack(one("script", figure).textContent));
      figure.outerHTML = html; // the report's own, escaped when it was written
    }));
    if (unpacked) unpacked.then(run); else run();
  };
  return { ready, drawn, paints, all, one, make, svgMake, state, readState, remember, repaints, lightColors, save, saveSvg, check, choices };
})();
