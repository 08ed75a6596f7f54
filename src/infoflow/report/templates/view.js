"use strict";
// The file of one sentence, which holds its numbers in packed form.
(() => {
  const { one, readState } = page;
  const unpacked = new Map();
  const block = (name) => {
    if (!unpacked.has(name)) unpacked.set(name, attention.unpack(one(`[data-block="${name}"]`).textContent));
    return unpacked.get(name);
  };
  const data = { ...JSON.parse(one("#view-data").textContent), block };
  // Answers that the explorer saved in the file, by question; others are not available.
  data.ask = async (what, request = {}) => {
    const kept = (data.answers?.[what] || []).find((answer) => Object.entries(request).every(([key, value]) => answer[key] === undefined || value === undefined || answer[key] === value));
    if (!kept) throw new Error("This was not computed before the file was saved.");
    return kept;
  };
  if (data.before) data.before = { ...data.before, block: (name) => block(`before/${name}`) };
  if (data.answers?.tokens || data.answers?.heads) data.strips = data.answers;
  const state = data.state || "";
  readState(state);
  const shown = sentenceView(one("#pictures"), data);
  addEventListener("hashchange", () => { readState(state); shown.paint(); });
  shown.paint();
})();
