"use strict";
// Navigation: contents, sections that fold, search for a head or a claim.
page.ready(() => {
  const { all, one, make } = page;
  const NARROW = "(max-width: 48rem)", MOST = 24;
  const contents = one("#contents"), search = one("#search"), found = one("#found"), foldAll = one("#fold-all");
  if (!contents) return;

  // ---- sections fold: on narrow screens from the start
  const sections = all("section.question");
  const fold = (section, folded) => {
    section.classList.toggle("folded", folded);
    const button = one(".fold", section);
    button.setAttribute("aria-expanded", String(!folded));
    button.textContent = folded ? one("figure", section) ? `show ${all("figure", section).length} figure${all("figure", section).length > 1 ? "s" : ""}` : "show" : "fold";
  };
  for (const section of sections) {
    const button = make("button", "", { type: "button", class: "fold", "aria-controls": section.id });
    one("header", section).append(button);
    button.addEventListener("click", () => fold(section, !section.classList.contains("folded")));
    fold(section, matchMedia(NARROW).matches);
  }
  const paintAll = () => { foldAll.textContent = sections.some((section) => !section.classList.contains("folded")) ? "fold all sections" : "open all sections"; };
  foldAll.addEventListener("click", () => {
    const some = sections.some((section) => !section.classList.contains("folded"));
    for (const section of sections) fold(section, some);
    paintAll();
  });

  // Opens whatever hides an element, before a jump to it; returns whether anything was opened.
  page.reveal = (place) => {
    let opened = false;
    const section = place.closest("section.question.folded");
    if (section) { fold(section, false); opened = true; }
    for (let box = place.closest("details"); box; box = box.parentElement.closest("details")) if (!box.open && box !== contents) { box.open = true; opened = true; }
    const own = place.matches("li") ? one("details.claim", place) : null;
    if (own && !own.open) own.open = opened = true;
    return opened;
  };

  // ---- the menu closes once it has led somewhere
  contents.addEventListener("toggle", () => {
    paintAll();
    if (contents.open && matchMedia("(hover: hover)").matches) search.focus();
  });
  contents.addEventListener("click", (event) => { if (event.target?.closest("a")) contents.open = false; });
  addEventListener("click", (event) => { if (contents.open && !event.target?.closest("#contents")) contents.open = false; });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && contents.open) { contents.open = false; one("summary", contents).focus(); }
    if (event.key === "/" && !event.target?.closest("input, select, textarea")) { event.preventDefault(); contents.open = true; search.focus(); }
  });

  // ---- search
  let index = null;
  const indexed = () => {
    const entry = (kind, text, href) => ({ kind, text, href, low: `${kind} ${text}`.toLowerCase() });
    const figures = all("figure[id] > h3").map((title) => entry("figure", title.textContent, `#${title.parentElement.id}`));
    const claims = all(".scorecard > li[id]").map((row) => entry("claim", `${one(".words", row).textContent} (${row.id}, ${one(".verdict", row).textContent.trim()})`, `#${row.id}`));
    const measures = all("#methods dt[id]").map((title) => entry("method", title.textContent, `#${title.id}`));
    return [...sections.map((section) => entry("section", one("h2", section).textContent, `#${section.id}`)), ...figures, ...claims, ...measures];
  };
  // "encoder 3.5", "3.5", "causal lm 2 4": layer and head, and other words of the grid's name.
  const heads = (words) => {
    const match = /^(.*?)(\d+)\s*[. /]\s*(\d+)$/.exec(words.trim());
    if (!match) return [];
    const [, name, layer, head] = match, wanted = name.toLowerCase().split(/\s+/).filter((word) => word && !["head", "layer"].includes(word));
    return all("[data-map]").flatMap((box) => {
      const figure = box.closest("figure");
      return all("table.heads", box).filter((table) => one(`button[data-layer="${Number(layer)}"][data-head="${Number(head)}"]`, table)).map((table) => {
        const caption = one("caption", table)?.textContent.trim() || table.dataset.grid;
        return { kind: "head", text: `${caption}, layer ${Number(layer)}, head ${Number(head)}`, low: `${caption} ${table.dataset.grid}`.toLowerCase(), href: `#${figure.id};head=${encodeURIComponent(`${table.dataset.grid}/${Number(layer)}/${Number(head)}`)}` };
      }).filter((each) => wanted.every((word) => each.low.includes(word)));
    });
  };
  const look = () => {
    const words = search.value.trim().toLowerCase();
    contents.classList.toggle("searching", Boolean(words));
    if (!words) { found.replaceChildren(); return; }
    index ??= indexed();
    const parts = words.split(/\s+/);
    const hits = [...heads(words), ...index.filter((each) => parts.every((part) => each.low.includes(part)))];
    found.replaceChildren(...hits.slice(0, MOST).map((hit) => {
      const link = make("a", "", { href: hit.href }), row = make("li");
      link.append(make("span", hit.kind, { class: "kind" }), make("bdi", hit.text));
      row.append(link);
      return row;
    }), ...(hits.length > MOST ? [make("li", `${hits.length - MOST} more: add another word`, { class: "small" })] : hits.length ? [] : [make("li", "Nothing with that name in this report.", { class: "small" })]));
  };
  search.addEventListener("input", look);
  search.addEventListener("keydown", (event) => {
    const first = one("a", found);
    if (event.key === "Enter" && first) { event.preventDefault(); first.click(); }
    if (event.key === "ArrowDown" && first) { event.preventDefault(); first.focus(); }
  });

  // ---- where the reader is, marked at the side
  const links = new Map(all(".side a").map((link) => [link.hash.slice(1), link]));
  const marker = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) for (const [id, link] of links) link.toggleAttribute("aria-current", id === entry.target.id);
  }, { rootMargin: "-20% 0px -75% 0px" });
  for (const id of links.keys()) { const place = document.getElementById(id); if (place) marker.observe(place); }
});
