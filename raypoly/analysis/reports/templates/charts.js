"use strict";
// Charts by uPlot: numbers over steps, seconds or k. Names are text, never HTML. With `data-live` the page follows a run.
(() => {
  const at = (id) => document.getElementById(id);
  if (!at("charts")) return;
  const HEIGHT = 190, EVERY = 2000, DASHES = [[], [9, 3, 2, 3], [5, 3]];
  const SECONDS = [.1, .5, 1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 18000, 36000, 86400, 432000, 864000];
  const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6];
  const entries = new Map(); // by the chart's title
  let data = JSON.parse(at("numbers").textContent);

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const number = (value) => (value == null ? "-"
    : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en")
      : Number(value.toPrecision(4))[value && Math.abs(value) < 1e-3 ? "toExponential" : "toString"]());
  const time = (value) => (value < 120 ? `${number(value)} s`
    : value < 7200 ? `${number(value / 60)} min` : `${number(value / 3600)} h`);
  const kindOf = (chart) => (data.axes[chart.lines[0].axis].k ? "k" : at("over").value);
  const shownAs = (kind) => (kind === "seconds" ? time : number);

  const element = (tag, text = "", kind = "") => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };

  const scoped = (cell, scope) => Object.assign(cell, { scope });
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const runningMean = (values, count) => values.map((_, i) => mean(values.slice(Math.max(0, i + 1 - count), i + 1)));

  // [places, mean of the seeds, least, most], or of a single one [places, smoothed, as measured]; null without a point.
  function arm(lines, kind) {
    const runs = lines.map(({ axis, y }) => {
      const axes = data.axes[axis], steps = axes.k ?? axes.step ?? axes.evaluated;
      const places = kind === "seconds" ? axes.seconds : steps;
      const known = [...y.keys()].filter((i) => y[i] !== null && places[i] !== null);
      const raw = known.map((i) => y[i]), x = known.map((i) => places[i]);
      const smooth = axes.step ? runningMean(raw, Number(at("smoothing").value)) : raw;
      return { x, raw, smooth, steps: new Map(known.map((i, j) => [steps[i], j])) };
    }).filter((run) => run.x.length);
    if (runs.length < 2) return runs.length ? [runs[0].x, runs[0].smooth, runs[0].raw] : null;
    const shared = [...runs[0].steps.keys()].filter((step) => runs.every((run) => run.steps.has(step)));
    const of = (name) => shared.map((step) => runs.map((run) => run[name][run.steps.get(step)]));
    const ys = of("smooth");
    const ends = [Math.min, Math.max].map((end) => ys.map((y) => end(...y)));
    return shared.length ? [of("x").map(mean), ys.map(mean), ...ends] : null;
  }

  function tables(chart) {
    const named = new Map(), kind = kindOf(chart);
    for (const line of chart.lines) named.set(line.name, [...(named.get(line.name) ?? []), line]);
    return [...named].map(([name, lines]) => ({ name, table: arm(lines, kind) })).filter((it) => it.table);
  }

  function seriesOf(arms, off) {
    const series = [{}], bands = [], strokes = colour("--lines").split(" ");
    arms.forEach(({ name, table }, place) => {
      const known = data.arms?.indexOf(name) ?? place, i = known < 0 ? data.arms.length + place : known;
      const stroke = strokes[i % strokes.length], show = !off.has(name), at = series.length;
      series.push({ label: name, stroke, show, width: 1.8, dash: DASHES[i % DASHES.length], spanGaps: true,
        points: { fill: colour("--page") },
        value: (u, value, at) => number(value ?? u.data[at].findLast((each) => each != null)) });
      const beside = { label: name, show, class: "beside", spanGaps: true, points: { show: false } };
      if (table.length === 3) series.push({ ...beside, stroke: `${stroke}55`, width: 1 });
      else {
        series.push({ ...beside, width: 0 }, { ...beside, width: 0 });
        bands.push({ series: [at + 2, at + 1], fill: `${stroke}2a` });
      }
    });
    return { series, bands };
  }

  // Of the series whose place is next to the pointer's: arms have points at places of their own.
  function nearest(u, series, place, x) {
    const has = (i) => u.data[series][i] != null;
    let low = place, high = place;
    while (low > 0 && !has(low)) low--;
    while (high < u.data[0].length - 1 && !has(high)) high++;
    if (!has(low) || !has(high)) return has(high) ? high : low;
    return x - u.data[0][low] <= u.data[0][high] - x ? low : high;
  }

  function yRange(u, low, high) {
    if (low == null || (!low && !high)) return [0, 1];
    const pad = (high - low) * 0.07 || Math.abs(high) * 0.1 || 1;
    return [low >= 0 && low < high / 2 ? 0 : low - pad, high <= 0 && high > low / 2 ? 0 : high + pad];
  }

  function optionsOf(entry, arms) {
    const kind = kindOf(entry.chart), text = colour("--quiet"), line = colour("--line"), shown = shownAs(kind);
    const axis = { stroke: text, font: "12px system-ui, sans-serif", grid: { stroke: line, width: 1 },
      ticks: { stroke: line, width: 1, size: 4 } };
    const { series, bands } = seriesOf(arms, entry.off);
    series[0] = { label: kind === "seconds" ? "time" : kind, value: (u, value) => (value == null ? "last" : shown(value)) };
    return {
      width: Math.max(entry.plot.clientWidth, 100), height: HEIGHT, series, bands,
      scales: { x: { time: false, ...(kind === "k" ? { distr: 3, log: 2 } : {}) }, y: { range: yRange } },
      axes: [
        { ...axis, size: 30, space: 60, values: (u, ticks) => ticks.map((tick) => (tick === null ? "" : shown(tick))),
          ...(kind === "k" ? {} : { incrs: kind === "seconds" ? SECONDS : STEPS }) },
        { ...axis, size: 56, values: (u, ticks) => ticks.map(number) },
      ],
      legend: { markers: { fill: (u, i) => u.series[i].stroke(u, i) } },
      cursor: { dataIdx: nearest, drag: { x: kind !== "k", y: false }, points: { size: 7 } },
      hooks: { setScale: [(u, scale) => scale === "x" && zoomed(entry, u)], setSeries: [(u, i) => hide(entry, u, i)] },
    };
  }

  const isZoomed = (u) => u.scales.x.min > u.data[0][0] || u.scales.x.max < u.data[0].at(-1);

  function zoomed(entry, u) {
    const { min, max } = u.scales.x, shown = shownAs(kindOf(entry.chart));
    entry.zoom = isZoomed(u) ? { min, max } : null;
    entry.all.hidden = !entry.zoom;
    entry.all.textContent = `${shown(min)} to ${shown(max)}: show all`;
    tell(entry, u);
  }

  // What belongs to a name goes with it.
  function hide(entry, u, place) {
    const changed = u.series[place];
    if (!place || changed.class === "beside") return;
    entry.off[changed.show ? "delete" : "add"](changed.label);
    u.series.forEach((each, i) => {
      if (each.class === "beside" && each.label === changed.label && each.show !== changed.show)
        u.setSeries(i, { show: changed.show });
    });
  }

  // The numbers in sight as a table, for who can't see the chart or wants them exactly.
  function tell(entry, u) {
    if (!entry.told.open || !u) return;
    const shown = u.series.map((each, i) => i).filter((i) => u.series[i].class !== "beside"), table = element("table");
    const cells = (row, made) => shown.forEach((i) => row.append(made(i)));
    cells(table.createTHead().insertRow(), (i) => scoped(element("th", u.series[i].label, "n"), "col"));
    const body = table.createTBody(), write = [shownAs(kindOf(entry.chart)), ...u.data.slice(1).map(() => number)];
    u.data[0].forEach((x, row) => {
      if (x >= u.scales.x.min && x <= u.scales.x.max)
        cells(body.insertRow(), (i) => element("td", write[i](u.data[i][row]), "n"));
    });
    entry.told.lastChild.replaceChildren(table);
  }

  function make(chart) {
    const figure = element("figure"), caption = element("figcaption", chart.title), plot = element("div", "", "plot");
    const all = element("button"), told = element("details"), wide = element("div", "", "wide");
    const entry = { chart, figure, plot, all, told, off: new Set(), zoom: null };
    all.type = "button";
    all.hidden = true;
    all.addEventListener("click", () => entry.u.setScale("x", { min: entry.u.data[0][0], max: entry.u.data[0].at(-1) }));
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", `${chart.title}; its numbers are below`);
    told.append(element("summary", "its numbers"), wide);
    told.addEventListener("toggle", () => tell(entry, entry.u));
    wide.tabIndex = 0;
    caption.append(all);
    figure.append(caption, plot, told);
    sizes.observe(plot);
    plot.entry = entry;
    return entry;
  }

  const sizes = new ResizeObserver((found) => found.forEach(({ target, contentRect }) => {
    if (target.entry.u && contentRect.width) target.entry.u.setSize({ width: contentRect.width, height: HEIGHT });
  }));

  // A finger drags and looks as a mouse does.
  function touch(over) {
    for (const [from, to] of [["pointerdown", "mousedown"], ["pointermove", "mousemove"], ["pointerup", "mouseup"]])
      over.addEventListener(from, ({ pointerType, clientX, clientY }) => {
        if (pointerType !== "touch") return;
        over.dispatchEvent(new MouseEvent(to, { clientX, clientY, movementX: 1, bubbles: true })); // it takes 0 for none
      });
  }

  function draw(entry, anew = false) {
    if (entry.chart.more && !at("more").open) return;
    const arms = tables(entry.chart), names = JSON.stringify(arms.map(({ name, table }) => [name, table.length]));
    const zoom = entry.zoom, joined = arms.length ? uPlot.join(arms.map(({ table }) => table)) : [];
    if (anew || !entry.u || names !== entry.names) {
      entry.u?.destroy();
      entry.plot.textContent = arms.length ? "" : "not known over seconds";
      entry.u = arms.length ? new uPlot(optionsOf(entry, arms), joined, entry.plot) : null;
      entry.names = names;
      if (entry.u) touch(entry.u.over);
      entry.u?.root.querySelectorAll("th").forEach((each) => scoped(each, "row"));
    } else entry.u.setData(joined, !zoom);
    if (entry.u && zoom) entry.u.setScale("x", zoom);
    tell(entry, entry.u);
  }

  function drawAll(anew = false) {
    at("smoothed").textContent = at("smoothing").value === "1" ? "none" : `mean of ${at("smoothing").value} steps`;
    const seen = [0, 0]; // so many have their place, and so many of the folded
    for (const chart of data.charts) {
      const entry = entries.get(chart.title) ?? make(chart), box = chart.more ? at("more").lastElementChild : at("charts");
      const place = seen[Number(chart.more)]++;
      if (box.children[place] !== entry.figure) box.insertBefore(entry.figure, box.children[place] ?? null);
      entries.set(chart.title, entry);
      entry.chart = chart;
      draw(entry, anew);
    }
    at("more").hidden = !data.charts.some((chart) => chart.more);
  }

  at("smoothing").addEventListener("input", () => drawAll());
  at("over").addEventListener("change", () => {
    for (const entry of entries.values()) if (kindOf(entry.chart) !== "k") entry.zoom = null;
    drawAll(true);
  });
  at("more").addEventListener("toggle", () => drawAll());
  for (const query of ["print", "(prefers-color-scheme: dark)"])
    matchMedia(query).addEventListener("change", () => drawAll(true));
  drawAll();

  let tag = null, page = document.documentElement.dataset.live;
  async function follow() {
    try {
      const answer = await fetch("charts.json", { cache: "no-cache" });
      if (answer.headers.get("ETag") !== tag) {
        const found = await answer.json();
        tag = answer.headers.get("ETag");
        at("live").textContent = found.said;
        at("facts").textContent = found.facts ?? at("facts").textContent;
        data = found.numbers ?? data;
        drawAll();
        if (found.page && found.page !== page) await replaceRest(found.page);
      }
    } catch {
      tag = null;
      at("live").textContent = "raypoly watch has ended; start it again to go on from here.";
    }
    setTimeout(follow, EVERY);
  }

  // All but the charts, with what the reader has chosen in it.
  async function replaceRest(next) {
    const answer = await fetch("/");
    if (!answer.ok) return;
    const made = new DOMParser().parseFromString(await answer.text(), "text/html");
    const read = (each) => (each.tagName === "SELECT" ? each.selectedOptions[0]?.textContent : each.value);
    const chosen = [...at("rest").querySelectorAll("select, input")].map((each) => [each.id, read(each)]);
    at("rest").replaceWith(made.getElementById("rest"));
    browseRollouts();
    for (const [id, value] of chosen.filter(([id]) => at(id))) {
      const option = [...(at(id).options ?? [])].find((each) => each.textContent === value);
      at(id).value = option ? option.value : at(id).options ? at(id).value : value;
      at(id).dispatchEvent(new Event(at(id).options ? "change" : "input"));
    }
    page = next;
  }
  if (page !== undefined) follow();
})();
