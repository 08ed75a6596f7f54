"use strict";
// The live page: it sends what is typed to the server, and the views of the offline page show the answers.
// The address keeps text and choices: #;text=…;translation=…;pair=…;hide=encoder.3;heads=encoder.self.0.1;layers=encoder.2;…
// Reads the address and the server's answers, independently of the page.
const wire = (() => {
  /** Places, separated by commas, each with names and numbers separated by points: encoder.self.0.1,encoder.self.1.3
   * @type {(text: string | undefined) => (string | number)[][]} */
  const places = (text) => (text || "").split(",").filter(Boolean).map((one) => one.split(".").map((part) => (/^\d+$/.test(part) ? Number(part) : part)));
  /** @type {(list: (string | number)[][]) => string} */
  const written = (list) => list.map((one) => one.join(".")).join(",");
  /** The length of the head, the head as JSON, and the arrays that it names.
   * @type {(buffer: ArrayBuffer) => { head: any, arrays: Map<string, Uint8Array> }} */
  const unwired = (buffer) => {
    const bytes = new Uint8Array(buffer), length = new DataView(buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length))), arrays = new Map();
    let at = 4 + length;
    for (const [name, size] of head.arrays) { arrays.set(name, bytes.slice(at, at + size)); at += size; }
    return { head, arrays };
  };
  /** The token of a model at the place of another model's token in the same text; -1 if there is none.
   * @type {(theirs: Token[], index: number, own: Token[]) => number} */
  const sameToken = (theirs, index, own) => {
    const begins = (tokens) => { let at = 0; return tokens.map((token) => { const from = at; if (!token.special) at += token.text.replace(/^##/, "").length; return from; }); };
    const place = begins(theirs)[index], starts = begins(own);
    return theirs[index].special ? -1 : own.findLastIndex((token, at) => !token.special && starts[at] <= place);
  };
  return { places, written, unwired, sameToken };
})();
(() => {
  const { all, one, make, state, readState, remember } = page, { places, written } = wire;
  const models = JSON.parse(one("#models").textContent), start = JSON.parse(one("#start").textContent);
  const me = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const field = one("#text"), second = one("#translation"), partner = one("#pair"), waiting = one("#waiting"), trouble = one("#trouble");

  // ---- questions and answers
  class Replaced extends Error {}
  class Refused extends Error { constructor(message, status) { super(message); this.status = status; } }
  const tookLast = new Map();
  let asking = 0;
  const tellWaiting = (what) => {
    asking++;
    const begin = performance.now(), timers = [setTimeout(() => { waiting.textContent = `${what} …`; }, 400), setTimeout(() => { waiting.textContent = tookLast.has(what) ? `${what} … (took ${(tookLast.get(what) / 1000).toFixed(1)} s last time)` : `${what} …`; }, 2000)];
    return () => {
      timers.forEach(clearTimeout);
      tookLast.set(what, performance.now() - begin);
      if (!--asking) waiting.textContent = "";
    };
  };
  const gone = () => new Refused(`The explorer was stopped. Start it again with: ${start.command}`, 0);
  const send = async (path, request, signal) => {
    for (let turn = 0; ; turn++) {
      let answer;
      try {
        answer = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ page: me, ...request }), signal });
      } catch (error) { throw error.name === "AbortError" ? error : gone(); }
      if (answer.ok) return answer;
      if (answer.status === 409) throw new Replaced();
      if (answer.status === 429 && turn < 4) { await new Promise((done) => setTimeout(done, 1000 * Math.min(Number(answer.headers.get("retry-after")) || 0.5, 3))); continue; }
      const told = await answer.text();
      let message = told;
      try { message = JSON.parse(told).error || told; } catch { /* plain text */ }
      if (answer.status === 401) message = `This page belongs to an explorer that was stopped. Start it again with: ${start.command}`;
      throw new Refused(message, answer.status);
    }
  };
  /** @type {(answer: Response) => Promise<{ head: any, arrays: Map<string, Uint8Array> }>} */
  const unwired = async (answer) => wire.unwired(await answer.arrayBuffer());

  // ---- a model's column
  const column = (number) => {
    const model = models[number], root = one(`.column[data-model="${number}"]`), suffix = number ? String(number) : "", own = (name) => state[name + suffix];
    const pictures = one(".pictures", root), taken = one(".taken", root), problem = one(".column-trouble", root);
    let view = null, turn = 0, plain = null, undone = [], stream = null;
    const fail = (error) => {
      if (error instanceof Replaced || error.name === "AbortError") return;
      problem.textContent = error.message;
      problem.hidden = false;
      root.hidden = false;
      root.classList.remove("waiting");
      if (!error.status) retry();
    };
    // Pictures of the previous sentence must not be shown under a sentence that was refused.
    const showPictures = (on) => { for (const part of [pictures, taken]) part.hidden = !on; };
    const change = () => ({ hide: places(own("hide")), close: { heads: places(own("heads")), layers: places(own("layers")) }, mode: own("mode") === "mean" ? "mean" : "zero" });
    const isChanged = () => Boolean(own("hide") || own("heads") || own("layers"));

    // The data of a view, from an answer: numbers by name, and ask() to request what is missing.
    const documentOf = (head, arrays, before) => {
      const answers = new Map(), data = { ...head.view, key: head.key, live: true, opens: "model", strips: {}, running: "" };
      data.block = async (name) => arrays.get(name);
      if (before) { data.before = before; data.effect = head.changed; }
      data.ask = (what, request = {}) => {
        const named = what + JSON.stringify(request);
        if (!answers.has(named)) {
          const asked = (async () => {
            const full = what === "lens" && request.position !== undefined ? answers.get("lens{}") : null;
            if (full) return full;
            const done = tellWaiting(what === "lens" ? "Reading what layers predict" : "Tracing where the prediction comes from");
            try {
              const { head: found } = await unwired(await send("/api/read", { model: number, key: data.key, want: [what], ...(data.further.includes(what) ? { choices: request } : request) }));
              if (found[what].reason) throw new Refused(found[what].reason, 422);
              return found[what];
            } finally { done(); }
          })();
          answers.set(named, asked);
          asked.catch((error) => { answers.delete(named); if (error.status === 404) read(); });
        }
        return answers.get(named).catch((error) => { throw error instanceof Replaced ? new Error("") : error; });
      };
      data.painted = () => { for (const one of columns) one.paint(); }; // what is shown is the same in both columns
      data.chosen = () => { paintTaken(); for (const other of columns) if (other.number !== number) other.follow(tokenNow(), data); };
      data.start = (what) => strip(data, what);
      data.stop = () => stream?.abort();
      return data;
    };
    const show = (data) => {
      root.hidden = false;
      problem.hidden = true;
      root.classList.remove("waiting");
      showPictures(true);
      if (view) view.show(data);
      else { view = sentenceView(pictures, data, number); view.paint(); }
      paintTaken();
    };
    const read = async () => {
      const mine = ++turn, done = tellWaiting(`Reading with ${model.name}`);
      stream?.abort();
      root.classList.add("waiting");
      try {
        const { head, arrays } = await unwired(await send("/api/read", { model: number, text: state.text, translation: model.stacks > 1 ? state.translation || "" : "", pair: model.pairs ? state.pair || "" : "", want: ["attention"] }));
        if (mine !== turn) return;
        plain = documentOf(head, arrays);
        if (isChanged()) await readChanged(mine);
        else show(plain);
      } catch (error) {
        if (mine !== turn) return;
        if (error.status === 400 || error.status === 422) { plain = null; showPictures(false); }
        fail(error);
      } finally { done(); }
    };
    const readChanged = async (mine = ++turn) => {
      if (!plain) return;
      stream?.abort();
      if (!isChanged()) { show(plain); return; }
      root.classList.add("waiting");
      const done = tellWaiting("Reading with the change");
      try {
        const { head, arrays } = await unwired(await send("/api/change", { model: number, key: plain.key, want: ["attention"], ...change() }));
        if (mine !== turn) return;
        show(documentOf(head, arrays, plain));
      } catch (error) {
        if (mine !== turn) return;
        if (error.status === 404) { read(); return; }
        if (error.status === 422 && isChanged()) { undo(); show(plain); }
        fail(error);
      } finally { done(); }
    };

    // ---- strips and sweeps: results that arrive line by line
    const strip = async (data, what) => {
      stream?.abort();
      const mine = (stream = new AbortController());
      data.strips[what] = [];
      data.running = what;
      view.paint();
      try {
        const request = what === "heads" ? { sweep: "heads", ...(isChanged() ? { mode: own("mode") === "mean" ? "mean" : "zero" } : {}) } : { want: ["influence"] };
        const reader = (await send(what === "heads" ? "/api/change" : "/api/read", { model: number, key: data.key, ...request }, mine.signal)).body?.getReader(), decoder = new TextDecoder();
        let rest = "";
        for (;;) {
          const { done, value } = await /** @type {ReadableStreamDefaultReader<Uint8Array>} */ (reader).read();
          if (done) break;
          const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
          rest = lines.pop() ?? "";
          for (const line of lines) {
            const row = JSON.parse(line);
            if (row.error) throw new Refused(row.error, 422);
            data.strips[what].push(row);
          }
          if (view.data() === data && view.view() === "changes") view.paint();
        }
      } catch (error) { fail(error); } finally {
        if (data.running === what) data.running = "";
        if (stream === mine) stream = null;
        if (view.data() === data && view.view() === "changes") view.paint();
      }
    };

    // ---- what is ablated
    const tokenNow = () => {
      const data = view?.data();
      if (!data) return null;
      const given = /^(\w+)\.(\d+)$/.exec(own("focus") || "");
      if (given && data.tokens[given[1]]?.[Number(given[2])]) return { stack: given[1], index: Number(given[2]) };
      return null;
    };
    const choose = (stack, index) => {
      const data = view.data(), kind = view.kind();
      remember({ ["focus" + suffix]: `${stack}.${index}`, ...(stack === data.last ? { ["at" + suffix]: String(index), ["target" + suffix]: "", ["against" + suffix]: "" } : {}), ...(stack === kind.stack ? { ["token" + suffix]: `q${index}` } : stack === kind.keys ? { ["token" + suffix]: `k${index}` } : {}) });
      view.paint();
      data.chosen();
    };
    const set = (changes) => {
      undone.push(["hide", "heads", "layers", "mode"].map((name) => [name + suffix, own(name) || ""]));
      remember(Object.fromEntries(Object.entries(changes).map(([name, value]) => [name + suffix, value])));
      readChanged();
      paintTaken();
    };
    const undo = () => {
      const last = undone.pop();
      remember(Object.fromEntries(last || ["hide", "heads", "layers"].map((name) => [name + suffix, ""])));
      paintTaken();
    };
    const toggle = (name, place) => {
      const list = places(own(name)), found = list.findIndex((one) => one.join(".") === place.join("."));
      if (found < 0) list.push(place); else list.splice(found, 1);
      set({ [name]: written(list) });
    };
    const paintTaken = () => {
      const data = view?.data(), parts = [];
      if (!data) return;
      const chosen = tokenNow(), hidden = new Set(places(own("hide")).map((one) => one.join("."))), active = /** @type {HTMLElement | null} */ (document.activeElement), focused = active && taken.contains(active) ? active.dataset.name : "";
      for (const [stack, tokens] of Object.entries(data.tokens)) {
        const row = make("div", "", { class: "tokens-row", role: "group", "aria-label": `Tokens of the ${stack}` });
        tokens.forEach((token, index) => {
          const isHidden = hidden.has(`${stack}.${index}`);
          const button = make("button", token.text, { type: "button", dir: "auto", "data-name": `${stack}.${index}`, "aria-pressed": String(chosen?.stack === stack && chosen.index === index), "aria-label": `${token.text}${token.segment === undefined ? "" : `, sentence ${"AB"[token.segment]}`}${isHidden ? ", hidden" : ""}` });
          if (token.segment === 1) button.classList.add("second");
          if (token.special) button.classList.add("special");
          if (isHidden) button.classList.add("hidden-token");
          button.addEventListener("click", () => choose(stack, index));
          row.append(button);
        });
        parts.push(row);
      }
      const acts = make("div", "", { class: "controls" }), layer = view.layer().layer, kind = view.kind(), head = view.head();
      const act = (name, text, does, disabled = false) => { const button = make("button", text, { type: "button", class: "act", "data-name": name }); button.disabled = disabled; button.addEventListener("click", does); acts.append(button); };
      const closedHead = places(own("heads")).some((one) => one.join(".") === `${kind.stack}.${kind.kind}.${layer}.${head}`), closedLayer = places(own("layers")).some((one) => one.join(".") === `${kind.stack}.${layer}`);
      act("act-hide", chosen ? `${hidden.has(`${chosen.stack}.${chosen.index}`) ? "Show" : "Hide"} “${data.tokens[chosen.stack][chosen.index].text}”` : "Choose a token to hide", () => { if (chosen) toggle("hide", [chosen.stack, chosen.index]); }, !chosen);
      act("act-head", `${closedHead ? "Open" : "Close"} head ${layer}.${head}`, () => toggle("heads", [kind.stack, kind.kind, layer, head]));
      act("act-layer", `${closedLayer ? "Open" : "Close"} layer ${layer}`, () => toggle("layers", [kind.stack, layer]));
      if (own("heads")) {
        const label = make("label", "closed heads give ", { class: "seed" }), select = make("select", "", { "data-name": "mode" });
        select.append(make("option", "zeros", { value: "" }), make("option", "their mean", { value: "mean" }));
        select.value = own("mode") || "";
        select.addEventListener("change", () => set({ mode: select.value }));
        label.append(select);
        acts.append(label);
      }
      act("act-undo", "Undo", () => { undo(); readChanged(); }, !undone.length && !isChanged());
      act("act-save", "Save page", save);
      parts.push(acts);
      if (isChanged()) {
        const list = make("div", "", { class: "gone", role: "group", "aria-label": "Ablated" });
        const pill = (text, does) => { const button = make("button", `${text} ×`, { type: "button", dir: "auto", "aria-label": `${text}: bring back` }); button.addEventListener("click", does); list.append(button); };
        for (const [stack, index] of places(own("hide"))) pill(`“${data.tokens[stack]?.[index]?.text ?? index}” hidden`, () => toggle("hide", [stack, index]));
        for (const [stack, kind, layer, head] of places(own("heads"))) pill(`${stack} ${kind} head ${layer}.${head} closed`, () => toggle("heads", [stack, kind, layer, head]));
        for (const [stack, layer] of places(own("layers"))) pill(`${stack} layer ${layer} closed`, () => toggle("layers", [stack, layer]));
        parts.push(list);
      }
      const scrolled = all(".tokens-row", taken).map((row) => row.scrollLeft);
      taken.replaceChildren(...parts);
      all(".tokens-row", taken).forEach((row, index) => { row.scrollLeft = scrolled[index] || 0; });
      if (focused) all("[data-name]", taken).find((button) => button.dataset.name === focused)?.focus();
    };
    const save = async () => {
      if (!plain) return;
      const data = view.data(), done = tellWaiting("Writing the page");
      const query = new URLSearchParams({ key: plain.key, ...(data !== plain ? { changed: data.key } : {}), state: location.hash, suffix });
      try {
        const answer = await fetch(`/api/save?${query}`).catch(() => { throw gone(); });
        if (!answer.ok) throw new Refused(JSON.parse(await answer.text()).error, answer.status);
        const named = /filename="([^"]+\.html)"/.exec(answer.headers.get("content-disposition") || "");
        page.save(named ? named[1] : "explored.html", await answer.text(), "text/html");
      } catch (error) { fail(error); } finally { done(); }
    };
    return {
      number, model, read, choose, paint: () => { if (view) { view.paint(); paintTaken(); } }, undo: () => { undo(); readChanged(); }, save, refresh: () => { if (view) { view.paint(); paintTaken(); readChanged(); } }, view: () => view, tokenNow,
      forget: () => { for (const name of ["hide", "heads", "layers", "focus", "token", "at", "trace", "state", "target", "against", "swapped", "answer", "wrong"]) remember({ [name + suffix]: "" }); undone = []; },
      // A token that stands at the same place of the sentence, whatever this model's tokens are.
      follow(theirs, other) {
        const data = view?.data();
        if (!data || !theirs) return;
        const all = Object.keys(data.tokens), stack = theirs.stack === Object.keys(other.tokens)[0] ? all[0] : all[all.length - 1];
        const found = wire.sameToken(other.tokens[theirs.stack], theirs.index, data.tokens[stack]);
        if (found < 0 || own("focus") === `${stack}.${found}`) return;
        remember({ ["focus" + suffix]: `${stack}.${found}`, ["token" + suffix]: `q${found}`, ["at" + suffix]: String(found) });
        view.paint();
        paintTaken();
      },
      act(name) { one(`[data-name="act-${name}"]`, taken)?.click(); },
    };
  };
  const columns = models.map((_, number) => column(number));

  // ---- the text
  let rest = 0;
  const readAll = async () => { for (const one of columns) await one.read(); };
  const typed = (now) => {
    clearTimeout(rest);
    rest = setTimeout(() => {
      const text = field.value.trim(), translation = second?.value.trim() || "", pair = partner?.value.trim() || "";
      if (text === (state.text || "") && translation === (state.translation || "") && pair === (state.pair || "")) return;
      for (const one of columns) one.forget();
      remember({ text, translation, pair });
      paintEmpty();
      if (text) readAll();
    }, now ? 0 : 350);
  };
  const paintEmpty = () => {
    one("#empty").hidden = Boolean(state.text);
    one("#columns").hidden = !state.text;
    one("#filled").hidden = true;
    trouble.hidden = true;
  };
  const write = (text, translation = "") => {
    field.value = text;
    if (second) second.value = translation;
    if (partner) partner.value = "";
    typed(true);
  };
  for (const box of [field, second, partner]) {
    box?.addEventListener("input", () => typed(false));
    box?.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); typed(true); } });
  }
  one("#ask").addEventListener("submit", (event) => event.preventDefault());
  one("#examples").append(...start.examples.map((text) => { const button = make("button", text, { type: "button", class: "act", dir: "auto" }); button.addEventListener("click", () => write(text)); return button; }));
  let retrying = false;
  const retry = () => { // the server is gone: one button, since the text is still here
    if (retrying) return;
    retrying = true;
    const button = make("button", "Try again", { type: "button", class: "act" });
    trouble.replaceChildren(`The explorer does not answer. `, button);
    trouble.hidden = false;
    button.addEventListener("click", () => { retrying = false; trouble.hidden = true; readAll(); });
  };

  // ---- blanks
  one("#fill")?.addEventListener("click", async () => {
    const box = one("#filled"), done = tellWaiting("Filling in");
    trouble.hidden = true;
    box.replaceChildren();
    for (const { number, model } of columns) {
      if (!model.predicts) continue;
      try {
        const found = await (await send("/api/blank", { model: number, text: field.value.trim(), translation: model.stacks > 1 ? second?.value.trim() || "" : "", pair: model.pairs ? partner?.value.trim() || "" : "" })).json();
        box.append(fillBox(model, found));
      } catch (error) { if (!(error instanceof Replaced)) { trouble.textContent = error.message; trouble.hidden = false; } }
    }
    done();
    box.hidden = !box.children.length;
  });
  const fillBox = (model, found) => {
    const box = make("div", "", { class: "fill-box" }), { blanks } = found;
    if (models.length > 1) box.append(make("h3", model.name));
    blanks.positions.forEach((position, which) => {
      const states = blanks.layers[which];
      const put = (id) => {
        const word = blanks.names[id];
        if (model.task === "masked-lm") {
          let seen = -1;
          for (const box of [field, partner]) if (box) box.value = box.value.replace(/___|\[MASK\]|<mask>/g, (blank) => (++seen === which ? word : blank));
          typed(true);
        }
        else if (model.task === "seq2seq") { second.value = `${second.value} ${word}`.trim(); typed(true); }
        else { field.value = `${field.value.trimEnd()} ${word}`; typed(true); }
      };
      box.append(make("h4", model.task === "masked-lm" ? `Blank ${which + 1}` : "Next token"), predictions.candidates(blanks, position, states.length - 1, put));
      const table = make("table", "", { class: "lens" }), body = table.createTBody(), details = make("details");
      states.forEach((row, state) => {
        const line = make("tr");
        line.append(make("th", String(state), { scope: "row" }), ...row.slice(0, 5).map(([id, share]) => make("td", `${blanks.names[id]} ${attention.percent(share)}`, { dir: "auto" })));
        body.prepend(line);
      });
      details.append(make("summary", "By layer"), table);
      box.append(details);
    });
    return box;
  };

  one("#link").addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(location.href); waiting.textContent = "Link copied: it opens while this explorer runs."; } catch { waiting.textContent = "The link is in the address of this page."; }
    setTimeout(() => { if (!asking) waiting.textContent = ""; }, 4000);
  });

  // ---- keys
  const help = one("#help");
  one("#keys").addEventListener("click", () => help.showModal());
  addEventListener("keydown", (event) => {
    if (event.target?.closest("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
    const current = columns.find((one) => one.view()?.root.closest(".column").contains(document.activeElement)) || columns[0], view = current.view();
    const pressed = (does) => { event.preventDefault(); does(); };
    if (event.key === "/") return void pressed(() => { field.focus(); field.select(); });
    if (event.key === "?") return void pressed(() => help.showModal());
    if (!view || !state.text) return;
    const suffix = current.number ? String(current.number) : "", heads = view.layer().heads, layers = view.kind().layers.map((of) => of.layer);
    const to = (changes) => pressed(() => { remember(changes); view.data().painted(); });
    if (/^[1-8]$/.test(event.key)) { const name = view.offered()[Number(event.key) - 1]?.[0]; if (name) to({ show: name === "model" ? "" : name }); }
    else if (event.key === "[" || event.key === "]") to({ ["head" + suffix]: String((view.head() + (event.key === "]" ? 1 : heads - 1)) % heads) });
    else if (event.key === "z") pressed(() => current.undo());
    else if (event.key === "s") pressed(() => current.save());
    else if (event.key === "x") {
      const thumb = event.target?.closest("button[data-head]");
      if (thumb?.dataset.layer !== undefined) { remember({ ["layer" + suffix]: thumb.dataset.layer, ["head" + suffix]: thumb.dataset.head }); view.data().painted(); }
      pressed(() => current.act(thumb || view.view() === "head" || !current.tokenNow() ? "head" : "hide"));
    } else if (!event.defaultPrevented && /^Arrow/.test(event.key) && !event.target?.closest("[role=radiogroup], [role=grid], [role=region], svg")) {
      const data = view.data(), chosen = current.tokenNow() || { stack: view.kind().stack, index: -1 }, size = data.tokens[chosen.stack].length, at = layers.indexOf(view.layer().layer);
      if (event.key === "ArrowLeft" || event.key === "ArrowRight") pressed(() => current.choose(chosen.stack, Math.min(Math.max(chosen.index + (event.key === "ArrowRight" ? 1 : -1), 0), size - 1)));
      else { const next = layers[at + (event.key === "ArrowUp" ? 1 : -1)]; if (next !== undefined) to({ ["layer" + suffix]: String(next) }); }
    }
  });

  const open = () => {
    readState();
    field.value = state.text || start.text || "";
    if (second) second.value = state.translation || start.translation || "";
    if (partner) partner.value = state.text ? state.pair || "" : start.pair || "";
    if (!state.text && start.text) remember({ text: start.text, translation: start.translation || "", pair: start.pair || "" });
    paintEmpty();
    if (state.text) readAll();
  };
  addEventListener("hashchange", () => {
    const before = [state.text, state.translation, state.pair].join("\n");
    readState();
    if ([state.text, state.translation, state.pair].join("\n") === before) for (const one of columns) one.refresh(); else open();
  });
  open();
})();
