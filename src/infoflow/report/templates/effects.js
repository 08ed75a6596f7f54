"use strict";
// Changes: the effect of ablating tokens, heads or layers, and which single token or head has the largest effect.
furtherViews.changes = {
  label: "changes",
  there: (data) => Boolean(data.live || data.effect || data.strips),
  paint: (context) => {
    const { make } = page, { data, say } = context, parts = [];
    const cell = (value, most, text, label) => {
      const td = make("td", text ?? "", { title: label, ...(value === null || value === undefined ? { class: "none" } : {}) });
      td.style.setProperty("--v", String(value ? Math.sqrt(Math.min(value / most, 1)) : 0));
      return td;
    };
    const grid = (tokens, rows, most, labels, digits = 2) => { // rows of numbers by token, the last on top
      const shown = attention.shownTokens(tokens, context.hideSpecial()), table = make("table", "", { class: "effects" }), head = table.createTHead().insertRow(), body = table.createTBody();
      head.append(make("th", ""), ...shown.map((index) => make("th", tokens[index].text, { scope: "col", dir: "auto" })));
      rows.forEach((row, number) => {
        const line = make("tr");
        line.append(make("th", labels[number], { scope: "row" }), ...shown.map((index) => cell(row[index], most, "", `${tokens[index].text}: ${row[index] === null || row[index] === undefined ? "left out" : row[index].toPrecision(digits)}`)));
        body.prepend(line);
      });
      const scroll = make("div", "", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table, scrolls sideways" });
      scroll.append(table);
      return scroll;
    };
    const sentences = [];
    if (data.effect) {
      const effect = data.effect, { divergence } = effect, name = (id) => `“\u2068${effect.names[id]}\u2069”`;
      parts.push(make("h4", "Effect of the change"));
      if (divergence) {
        const tokens = data.tokens[effect.stack], most = divergence.map((value, index) => [value ?? -1, index]).sort((a, b) => b[0] - a[0]).slice(0, 5).filter(([value]) => value > 0);
        const flipped = effect.before.filter((row, index) => row[0][0] !== effect.after[index][0][0] && divergence[index] !== null).length;
        sentences.push(`${flipped} of ${tokens.length} top tokens changed${most.length ? `; the prediction at ${attention.quoted(tokens[most[0][1]])} changed most (${most[0][0].toPrecision(2)} nats)` : ""}.`);
        parts.push(grid(tokens, [divergence], Math.max(...divergence.map((value) => value ?? 0), 1e-9), ["KL"]));
        const list = make("ul", "", { class: "flips" });
        for (const [value, index] of most) {
          const side = (row) => row.slice(0, 2).map(([id, share]) => `${name(id)} ${attention.percent(share)}`).join(", ");
          list.append(make("li", `At ${attention.quoted(tokens[index])}: ${side(effect.before[index])} → ${side(effect.after[index])} (${value.toPrecision(2)} nats)`, { dir: "auto" }));
        }
        parts.push(list);
      }
      for (const [stack, rows] of Object.entries(effect.distance)) {
        const flat = rows.flat().filter((value) => value !== null);
        parts.push(make("p", `How far the vectors of the ${stack} moved (1 − cosine), by layer; at most ${Math.max(...flat, 0).toPrecision(2)}`, { class: "small" }), grid(data.tokens[stack], rows, Math.max(...flat, 1e-9), rows.map((_, state) => String(state))));
        if (!divergence) sentences.push(`Vectors of the ${stack} moved by at most ${Math.max(...flat, 0).toPrecision(2)} (1 − cosine).`);
      }
    }
    const measure = data.predicts ? "divergence" : "distance", unit = data.predicts ? "mean KL of the predictions, nats" : "mean 1 − cosine of the last vectors";
    const buttons = make("div", "", { class: "controls" });
    for (const [what, text] of [["tokens", "Which token matters?"], ["heads", "Which head matters?"]]) {
      if (!data.live) continue;
      const running = data.running === what, button = make("button", running ? "Stop" : text, { type: "button", class: "act", "data-strip": what });
      button.addEventListener("click", () => (running ? data.stop?.() : data.start?.(what)));
      buttons.append(button);
    }
    if (data.live) parts.push(buttons);
    const { tokens = [], heads = [] } = data.strips || {};
    if (tokens.length) {
      parts.push(make("h4", `Each token hidden: ${unit}`));
      for (const stack of Object.keys(data.tokens)) {
        const row = data.tokens[stack].map((_, index) => tokens.find((one) => one.stack === stack && one.token === index)?.[measure]);
        if (row.some((value) => value !== undefined)) parts.push(grid(data.tokens[stack], [row], Math.max(...row.map((value) => value ?? 0), 1e-9), [stack]));
      }
      const best = [...tokens].sort((a, b) => (b[measure] ?? 0) - (a[measure] ?? 0))[0];
      sentences.push(`Hiding ${attention.quoted(data.tokens[best.stack][Number(best.token)])} has the largest effect (${(best[measure] ?? 0).toPrecision(2)}).`);
    }
    if (heads.length) {
      const rows = data.kinds.flatMap((kind) => kind.layers.map((layer) => ({ stack: kind.stack, kind: kind.kind, layer: layer.layer, heads: Array.from({ length: layer.heads }, (_, head) => heads.find((one) => one.stack === kind.stack && one.kind === kind.kind && one.layer === layer.layer && one.head === head)?.[measure]) })));
      const grids = make("div", "", { class: "grids" });
      grids.append(...predictions.headGrids(context, rows, false));
      parts.push(make("h4", `Each head closed: ${unit}`), grids);
      const best = [...heads].sort((a, b) => (b[measure] ?? 0) - (a[measure] ?? 0))[0];
      sentences.push(`Closing ${best.stack} ${best.kind}, layer ${best.layer}, head ${best.head} has the largest effect (${(best[measure] ?? 0).toPrecision(2)}).`);
    }
    context.show(...parts);
    say(sentences.join(" ") || (data.live ? "Hide a token, close a head or a layer, or ask which one matters." : ""));
  },
};
