"use strict";
// A part of the model swapped between two sentences of equal length: one gets the part's value from the other. A square
// is the share of the difference in the prediction that the part carries (0: nothing changes, 1: the other prediction).
// The address keeps other=…;part=heads;into=second;swapped=decoder.self.3.2;answer=592;wrong=436.
const swap = (() => {
  /** A square by its address, with the rest of its grid.
   * @type {(of: SwapData, address: string) => SwapCell | null} */
  const cellAt = (of, address) => {
    for (const grid of of.grids) for (const row of grid.rows) {
      const column = grid.columns.findIndex((name) => addressOf(grid, row.layer, name) === address);
      if (column >= 0) return { grid, layer: row.layer, column: grid.columns[column], effect: row.effects[column], metric: row.metrics[column] };
    }
    return null;
  };
  /** @type {(grid: SwapGrid, layer: number, column: string) => string} */
  const addressOf = (grid, layer, column) => [grid.stack, grid.kind, layer, column].filter((part) => part !== "").join(".");
  /** The address of the square with the largest effect.
   * @type {(of: SwapData) => string} */
  const strongest = (of) => {
    const all = of.grids.flatMap((grid) => grid.rows.flatMap((row) => row.effects.map((effect, column) => ({ effect: effect ?? 0, address: addressOf(grid, row.layer, grid.columns[column]) }))));
    return all.sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect))[0]?.address ?? "";
  };
  return { cellAt, addressOf, strongest };
})();

furtherViews.swap = (() => {
  const { make, remember } = page;
  const PARTS = { heads: "heads", blocks: "attention and feed-forward", states: "states" };
  const SUBLAYERS = { self: "attention", cross: "cross-attention", "feed-forward": "feed-forward block" };
  const INTO = { first: "into the first sentence", second: "into the other sentence" };
  /** @type {(data: ViewData, grid: SwapGrid, column: string) => string} */
  const columnName = (data, grid, column) => (/^\d+$/.test(column) ? (grid.kind ? column : data.tokens[grid.stack][Number(column)]?.text ?? column) : SUBLAYERS[column]);
  const nats = (value) => value.toFixed(2).replace("-", "−");

  const sentence = (of, data, cell, into) => {
    if (!cell || cell.effect === null || cell.metric === null) return "";
    const { grid, layer, column } = cell, name = columnName(data, grid, column), [from, to] = into === "second" ? [1, 0] : [0, 1];
    const where = data.kinds.length > 1 ? `${grid.stack} ` : "";
    const what = grid.kind ? `${where}${grid.kind === "cross" ? "cross-attention " : ""}head ${column} of layer ${layer}` : SUBLAYERS[column] ? `the ${where}${name} of layer ${layer}` : `${where}state ${layer} at “\u2068${name}\u2069”`;
    const [[, answer], [, wrong]] = of.chosen;
    return `With ${what} as in ${from ? "the first" : "the other"} sentence, the logit of “\u2068${answer}\u2069” minus that of “\u2068${wrong}\u2069” goes from ${nats(of.metrics[from])} to ${nats(cell.metric)} nats; in that sentence it is ${nats(of.metrics[to])}. This part carries ${attention.percent(cell.effect)} of the difference.`;
  };
  const controls = (context, request, of, ready) => {
    const { data, change, suffix } = context, row = make("div", "", { class: "controls" });
    const select = (label, name, pairs, value) => {
      const box = make("label", `${label} `, { class: "seed" }), list = make("select", "", { dir: "auto", "data-choice": name });
      list.append(...pairs.map(([key, text]) => make("option", text, { value: key })));
      list.value = String(value);
      list.disabled = !data.live;
      list.addEventListener("change", () => change({ [name + suffix]: list.value, ...(name === "at" ? { ["answer" + suffix]: "", ["wrong" + suffix]: "" } : {}) }));
      box.append(list);
      row.append(box);
    };
    const label = make("label", "other sentence ", { class: "other-sentence" }), field = make("input", "", { type: "text", dir: "auto", maxlength: 2000, "data-choice": "other", placeholder: "Same number of tokens, one thing different" });
    field.value = page.state.other || "";
    field.disabled = !data.live;
    field.addEventListener("change", () => { if (field.value.trim() !== (page.state.other || "")) change({ other: field.value.trim(), ["answer" + suffix]: "", ["wrong" + suffix]: "" }); });
    label.append(field);
    select("swap", "part", Object.entries(PARTS), request.part);
    select("", "into", Object.entries(INTO), request.into);
    select("prediction at", "at", data.tokens[data.last].map((token, index) => [index, `${index + 1} ${token.text}`]), request.at);
    if (ready) ["answer", "wrong"].forEach((name, which) => {
      const rows = of.offered[which].map(([id, text, first, second]) => [id, `${text}: ${attention.percent(first)}, ${attention.percent(second)}`]);
      if (!rows.some(([id]) => id === of.chosen[which][0])) rows.push(of.chosen[which]);
      select(which ? "less" : "logit of", name, rows, of.chosen[which][0]);
    });
    return [label, row];
  };
  /** @type {(context: ViewContext) => Promise<void>} */
  const paint = async (context) => {
    const { data, own, say, suffix } = context;
    const request = { other: page.state.other || "", part: Object.hasOwn(PARTS, own("part") || "") ? own("part") : "heads", into: own("into") === "second" ? "second" : "first", at: String(predictions.position(context)), answer: own("answer") || undefined, wrong: own("wrong") || undefined };
    const [label, row] = controls(context, request, null, false);
    if (!request.other) {
      context.show(label, row);
      say("Write a second sentence that differs in one thing and has the same number of tokens, such as “the key” instead of “the keys”. Each part of the model in turn then gets its value in that sentence, and you see how the prediction moves.");
      return;
    }
    if (data.live) { context.show(label, row); say(""); }
    let of;
    try { of = await data.ask("swap", request); } catch (error) {
      if (context.current()) { context.show(label, row, make("p", error.message, { class: "warnings" })); say(""); }
      return;
    }
    if (!context.current()) return;
    const grids = make("div", "", { class: "grids scroll", tabindex: 0, role: "region", "aria-label": "Effects, scroll sideways" });
    const chosen = () => (swap.cellAt(of, own("swapped") || "") ? own("swapped") || "" : swap.strongest(of));
    const tell = () => {
      const address = chosen();
      for (const button of page.all("button", grids)) { if (button.dataset.address === address) button.setAttribute("aria-current", "true"); else button.removeAttribute("aria-current"); }
      say(sentence(of, data, swap.cellAt(of, address), request.into));
    };
    grids.append(...of.grids.map((grid) => predictions.valueGrid({
      caption: data.kinds.find((kind) => kind.stack === grid.stack && kind.kind === grid.kind)?.label ?? grid.stack,
      columns: grid.columns.map((column) => columnName(data, grid, column)), rows: grid.rows.map((one) => ({ layer: one.layer, values: one.effects })),
      signed: true, most: 1, wide: grid.kind ? "" : SUBLAYERS[grid.columns[0]] ? "7.5rem" : "3.4rem",
      cell: (button, layer, column, value) => {
        const name = `layer ${layer}, ${grid.kind ? "head " : ""}${columnName(data, grid, grid.columns[column])}: ${value === null || value === undefined ? "no such part" : `${attention.percent(value)} of the difference`}`;
        for (const [key, text] of [["aria-label", name], ["title", name], ["data-address", swap.addressOf(grid, layer, grid.columns[column])]]) button.setAttribute(key, text);
        button.addEventListener("click", () => { remember({ ["swapped" + suffix]: button.dataset.address }); tell(); });
      },
    })));
    const tokens = make("p", `Its tokens: ${of.tokens.map((token) => token.text).join(" | ")}`, { class: "small", dir: "auto" });
    const note = make("p", "One pair of sentences has no interval: infoflow patch measures many pairs, with intervals and controls.", { class: "small" });
    context.show(...controls(context, request, of, true), tokens, grids, note);
    grids.before(context.status);
    tell();
  };
  return { label: "swap", there: (data) => Boolean(data.predicts && data.further?.includes("swap") && (data.live || data.answers?.swap?.length)), paint };
})();
