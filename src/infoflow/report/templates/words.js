"use strict";
// Words and their neighbours: choose a word, a model and a layer. Without this script the first word is shown.
page.ready(() => {
  const { all, one, make } = page;
  const sentence = (texts, [text, start, end]) => {
    const whole = texts[text];
    return [whole.slice(0, start), make("mark", whole.slice(start, end)), whole.slice(end)];
  };
  const start = async (box) => {
    const data = JSON.parse(new TextDecoder().decode(await attention.unpack(one(".words-data", box).textContent)));
    const [word, line, slider] = ["word", "line", "layer"].map((name) => one(`[data-${name}]`, box));
    const list = one(".occurrences", box);
    const measure = (number) => make("small", number === null ? "" : number.toFixed(2));
    const paintStatic = () => {
      const rows = data.lines.map(({ label, slot }, index) => {
        const row = make("tr"), head = make("th", "", { scope: "row" }), cell = make("td");
        head.append(make("b", label, { class: `name s${slot}` }));
        for (const [near, cosine] of data.static[index][word.value]) {
          const item = make("span", `${near} `, { class: "near" });
          item.append(measure(cosine));
          cell.append(item, " ");
        }
        row.append(head, cell);
        return row;
      });
      one(".static-words tbody", box).replaceChildren(...rows);
    };
    const occurrence = ({ group, at, near }) => {
      const item = make("li", "", { class: `side-${group}` }), own = make("p", "", { class: "own" }), others = make("ul");
      own.append(make("span", group === 0 ? "●" : "◇", { class: "sign", "aria-label": group === 0 ? "one side" : "the other side" }), " ", ...sentence(data.texts, at));
      for (const [, cosine, ...place] of near) {
        const other = make("li");
        other.append(...sentence(data.texts, place), " ", measure(cosine));
        others.append(other);
      }
      item.append(own, others);
      return item;
    };
    const paintContext = () => {
      if (!list) return;
      const { label, slot, layers } = data.lines[line.value];
      slider.max = layers.length - 1;
      const layer = Number(slider.value);
      one("output", box).textContent = layers[layer];
      one("[data-of-layer]", box).textContent = layers[layer];
      const name = one("[data-of-line]", box);
      name.textContent = label;
      name.className = `name s${slot}`;
      const found = data.context[line.value][layer][word.value];
      const sorted = [...(found?.occurrences ?? [])].sort((a, b) => a.group - b.group);
      list.replaceChildren(...(sorted.length ? sorted.map(occurrence) : [make("li", "It occurs too rarely to be compared.")]));
    };
    const paint = () => {
      for (const place of all("[data-of-word]", box)) place.textContent = data.words[word.value];
      paintStatic();
      paintContext();
    };
    const highest = () => { slider.max = data.lines[line.value].layers.length - 1; slider.value = slider.max; };
    word.addEventListener("change", paint);
    line.addEventListener("change", () => { highest(); paintContext(); });
    slider.addEventListener("input", paintContext);
    if (list) highest();
    paint();
  };
  for (const box of all("[data-words]")) start(box);
});
