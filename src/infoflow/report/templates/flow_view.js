"use strict";
// The flow as one of a sentence's views: the picture of flow.js with a choice of the least share, the chosen node in
// the address (trace=4.2;edges=0.05), and, where it can be had, all that the model would say at that node.
furtherViews.flow = (() => {
  const { make, remember } = page;
  const loaded = new WeakMap(); // flow of a document → what flow.load promises
  const numbers = (data, stack) => {
    const named = data.flows.find((one) => one.stack === stack);
    if (named && !loaded.has(named)) loaded.set(named, flow.load(named, data.block));
    return named ? loaded.get(named) : null;
  };
  const pinnedIn = (text) => {
    const [, level, token] = /^(\d+)\.(\d+)$/.exec(text || "") || [];
    return level === undefined ? null : { level: Number(level), token: Number(token) };
  };

  // A slider whose stops are the shares from which on lines may be drawn.
  const slider = (changed) => {
    const range = make("input", "", { type: "range", min: 0, max: flow.STEPS.length - 1, step: 1, "data-name": "edges" }), shown = make("output");
    const label = make("label", "lines from ", { class: "seed" });
    label.append(range, " ", shown);
    const set = (share) => {
      range.value = String(flow.STEPS.indexOf(share));
      shown.textContent = attention.percent(share);
      range.setAttribute("aria-valuetext", shown.textContent);
    };
    range.addEventListener("input", () => changed(flow.STEPS[Number(range.value)]));
    return { label, set };
  };

  const paint = async (context) => {
    const { data, own, kind, say, hideSpecial, suffix } = context, stack = kind().stack;
    if (!data.flows) { // the live page: they take longer than all else
      context.show();
      say("Following each token through the layers …");
      return;
    }
    const mine = await numbers(data, stack), source = mine?.source ? await numbers(data, mine.source) : null;
    if (!context.current()) return;
    if (!mine) {
      context.show();
      say(`There are no maps by ALTI of the ${stack}.`);
      return;
    }
    const speaks = data.predicts && stack === data.last && Boolean(data.live || data.answers?.lens?.length);
    const box = make("div", "", { class: "lines-scroll" }), detail = make("div", "", { class: "node-lens", "aria-live": "polite" });
    const edges = slider((share) => { remember({ ["edges" + suffix]: String(share) }); show(); });
    context.show(edges.label, box, detail);
    box.after(context.status);
    let told = null;
    const picture = flow.picture(box, (text, pinned) => {
      if (!context.current()) return;
      say(text);
      const trace = pinned ? `${pinned.level}.${pinned.token}` : "";
      if (trace === told) return;
      const first = told === null;
      told = trace;
      remember({ ["trace" + suffix]: trace, ...(pinned && speaks && !first ? { ["at" + suffix]: String(pinned.token) } : {}) });
      if (!first) data.chosen?.();
      if (speaks) tellLens(pinned, trace);
    });
    const tellLens = async (pinned, trace) => {
      detail.replaceChildren();
      if (!pinned) return;
      let parts;
      try {
        const lens = await data.ask("lens", { position: pinned.token });
        parts = [make("h4", `What the model would say at “${data.tokens[stack][pinned.token].text}”`, { dir: "auto" }), predictions.candidates(lens, pinned.token, pinned.level)];
      } catch (error) { parts = [make("p", error.message, { class: "small" })]; }
      if (told === trace) detail.replaceChildren(...parts);
    };
    const show = () => edges.set(picture.show(mine, { source, hideSpecial: hideSpecial(), edges: flow.STEPS.find((step) => String(step) === own("edges")), pinTo: pinnedIn(own("trace")) }));
    show();
    context.draw(() => attention.drawingOf([attention.copied(picture.svg)], 1e5));
  };
  return { label: "flow", there: (data) => !data.flows || data.flows.length > 0, paint };
})();
