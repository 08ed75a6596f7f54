"use strict";
// One slider through training: every chart of its section follows, and so do head grids and claims.
page.ready(() => {
  const { all, one, make, svgMake, state, remember, drawn, paints } = page;
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const PAUSE = 550; // milliseconds at a checkpoint while playing

  const signal = (view, name, value) => {
    try { view.signal(name, value); return true; } catch { return false; } // a chart without this parameter
  };

  const timeline = (box) => {
    const section = box.closest("section"), views = [], followers = [];
    const { moments, stated, clocks } = JSON.parse(one(".timeline-data", box).textContent);
    const slider = one("input[type=range]", box), play = one("[data-play]", box), output = one("output", box), axis = one("[data-clock]", box);
    let timer = 0;

    const place = () => {
      const wanted = state.update === undefined ? NaN : Number(state.update);
      return moments.includes(wanted) ? moments.indexOf(wanted) : moments.length - 1;
    };
    const clock = () => Math.max(clocks.findIndex(({ id }) => id === state.clock), 0);
    const follow = (view) => {
      const knows = [signal(view, "now", moments[place()]), signal(view, "clock", clock())];
      if (knows.some(Boolean)) view.runAsync();
    };
    const paint = () => {
      const now = place();
      slider.value = now;
      slider.setAttribute("aria-valuetext", stated[now]);
      output.textContent = stated[now];
      if (axis) axis.value = clocks[clock()].id;
      for (const view of views) follow(view);
      for (const follower of followers) follower(moments[now]);
    };
    const go = (to) => {
      const now = Math.min(Math.max(to, 0), moments.length - 1);
      remember({ update: now === moments.length - 1 ? "" : String(moments[now]) });
      paint();
    };

    // ---- playing; for readers who prefer reduced motion, one step per click
    const stop = () => {
      clearInterval(timer);
      timer = 0;
      play.textContent = still.matches ? "⏭" : "▶";
      play.setAttribute("aria-label", still.matches ? "Advance by one checkpoint" : "Play through training");
    };
    const step = () => {
      if (place() < moments.length - 1) go(place() + 1); else stop();
    };
    play.addEventListener("click", () => {
      if (timer) return stop();
      if (place() === moments.length - 1) go(0);
      else if (still.matches) step();
      if (still.matches) return undefined;
      play.textContent = "⏸";
      play.setAttribute("aria-label", "Pause");
      timer = setInterval(step, PAUSE);
      return undefined;
    });
    still.addEventListener("change", stop);
    slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
    play.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      stop();
      go(place() + by);
    });
    axis?.addEventListener("change", () => {
      remember({ clock: axis.value === clocks[0].id ? "" : axis.value });
      paint();
    });
    stop();

    drawn.push((view, where) => { if (where === section) { views.push(view); follow(view); } });
    for (const heads of all("[data-heads-over-training]", section)) headCourse(heads, followers, (update) => { stop(); go(moments.indexOf(update)); }, () => moments[place()]);
    for (const claims of all("[data-claims]", section)) followers.push(claimsAt(claims));
    paints.push(paint);
  };

  // ---- claims: the column of the checkpoint
  const claimsAt = (list) => {
    const rows = all(".verdicts", list).map((row) => all("li", row));
    return (now) => {
      for (const cells of rows) {
        const current = cells.filter((cell) => Number(cell.dataset.update) <= now).at(-1);
        for (const cell of cells) cell.classList.toggle("now", cell === current);
      }
    };
  };

  // ---- heads: a small grid for each checkpoint, and a large one for that of the slider
  const LEVELS = 2000, MISSING = 65535;
  const headCourse = async (box, followers, goTo, nowAt) => {
    const data = JSON.parse(one(".course-data", box).textContent);
    const choice = one("[data-shown]", box), scale = one(".scale", box);
    const grids = await Promise.all(data.grids.map(async (grid) => {
      const host = all(".course-of", box).find((each) => each.dataset.grid === grid.id);
      const block = all("[data-block]", box).find((each) => each.dataset.block === grid.id);
      const bytes = await attention.unpack(block.textContent);
      const numbers = new Uint16Array(bytes.slice().buffer);
      return { ...grid, host, numbers, count: grid.layers * grid.heads };
    }));
    const statisticOf = (id) => data.statistics.find((one) => one.id === id);
    // From 0 to 1 (or −1 to 1) of each head at a checkpoint; null where nothing was measured.
    const shares = (grid, at) => {
      const id = choice.value, update = grid.updates[at], values = new Array(grid.count).fill(null);
      if (id === "roles" || id.startsWith("role:")) {
        const wanted = id === "roles" ? -1 : Number(id.slice(5)), most = id === "roles" ? most_roles : 1;
        values.fill(0);
        for (const [role, head, since, until] of grid.spans) {
          if ((wanted < 0 || role === wanted) && since <= update && (until < 0 || update < until)) values[head] += 1 / most;
        }
        return values;
      }
      const block = grid.statistics.indexOf(id), own = statisticOf(id);
      if (block < 0) return values;
      const start = (block * grid.updates.length + at) * grid.count;
      return values.map((_, head) => {
        const number = grid.numbers[start + head];
        return number === MISSING ? null : own.signed ? 2 * number / LEVELS - 1 : number / LEVELS;
      });
    };
    const most_roles = Math.max(1, ...grids.flatMap((grid) => grid.updates.map((update) => {
      const counts = new Map();
      for (const [, head, since, until] of grid.spans) if (since <= update && (until < 0 || update < until)) counts.set(head, (counts.get(head) || 0) + 1);
      return Math.max(0, ...counts.values());
    })));
    const shareText = (share) => {
      if (share === null) return "not measured";
      const own = statisticOf(choice.value);
      if (!own) return choice.value === "roles" ? `${Math.round(share * most_roles)} roles` : share ? "holds it" : "does not hold it";
      return `${(share * own.top).toPrecision(3)}${own.unit ? ` ${own.unit}` : ""}`;
    };
    const picture = (grid, at, size) => {
      const values = shares(grid, at), signed = Boolean(statisticOf(choice.value)?.signed);
      const svg = svgMake("svg", { viewBox: `0 0 ${grid.heads} ${grid.layers}`, class: signed ? "signed" : "", width: grid.heads * size, height: grid.layers * size, "aria-hidden": "true" });
      values.forEach((share, number) => {
        const layer = Math.floor(number / grid.heads), head = number % grid.heads;
        const cell = svgMake("rect", { x: head + 0.05, y: grid.layers - 1 - layer + 0.05, width: 0.9, height: 0.9, rx: 0.12, class: share === null ? "empty" : "", style: `--v:${(share ?? 0).toFixed(3)}` });
        if (size > 12) {
          const title = svgMake("title", {});
          title.textContent = `layer ${layer}, head ${head}: ${shareText(share)}`;
          cell.append(title);
          cell.dataset.layer = String(layer);
        }
        svg.append(cell);
      });
      return svg;
    };
    const current = (grid) => {
      const now = nowAt(), before = grid.updates.filter((update) => update <= now);
      return Math.max(before.length - 1, 0);
    };
    const paintSmall = () => {
      for (const grid of grids) {
        one(".steps", grid.host).replaceChildren(...grid.updates.map((update, at) => {
          const button = make("button", "", { type: "button", "aria-label": `Go to update ${update.toLocaleString("en")}` });
          button.append(picture(grid, at, 6), make("span", update >= 10000 ? `${+(update / 1000).toPrecision(3)}k` : update.toLocaleString("en")));
          button.addEventListener("click", () => goTo(update));
          return button;
        }));
      }
      const own = statisticOf(choice.value), roles = choice.value === "roles";
      const [low, high] = own ? [own.signed ? `−${own.top}` : "0", String(own.top)] : ["0", roles ? String(most_roles) : "holds it"];
      scale.classList.toggle("signed", Boolean(own?.signed));
      one("[data-scale=low]", scale).textContent = own || roles ? low : "does not";
      one("[data-scale=high]", scale).textContent = high;
      one("[data-scale=label]", scale).textContent = own ? `${own.label}${own.margin ? ": lead over the control" : ""}${own.unit ? ` (${own.unit})` : ""}` : roles ? "roles that a head holds" : "";
    };
    const paintLarge = () => {
      for (const grid of grids) {
        const at = current(grid), large = one(".large", grid.host);
        large.replaceChildren(picture(grid, at, Math.min(20, Math.floor(220 / grid.heads))), make("p", `update ${grid.updates[at].toLocaleString("en")}`, { class: "small" }));
        all(".steps button", grid.host).forEach((button, place) => button.toggleAttribute("aria-current", place === at));
      }
    };
    const start = () => {
      const wanted = [...choice.options].find((option) => option.value === state.heads);
      choice.value = wanted ? wanted.value : choice.options[0].value;
    };
    choice.addEventListener("change", () => {
      remember({ heads: choice.value === choice.options[0].value ? "" : choice.value, place: box.closest("figure").id });
      paintSmall();
      paintLarge();
    });
    box.addEventListener("mouseover", (event) => {
      const layer = event.target.dataset?.layer;
      if (layer !== undefined) page.atLayer(box.closest("section"), Number(layer));
    });
    box.addEventListener("mouseleave", () => page.atLayer(box.closest("section")));
    start();
    paintSmall();
    paintLarge();
    followers.push(paintLarge);
  };

  for (const box of all("[data-timeline]")) timeline(box);
});
