// Draws the page's charts from the JSON in #data: lines, points, boxes, parallel axes. No library.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const state = { log: false, smooth: 0, filter: "" };
  const said = document.getElementById("said");
  const drawn = []; // {element, draw}

  const svg = (name, attributes = {}, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const html = (name, attributes = {}, text) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  // Eight colors of the theme, then hues far from the previous ones.
  const color = (n) => (n < 8 ? `var(--c${n})` : `hsl(${Math.round(n * 137.5) % 360} 60% 50%)`);
  const DASHES = ["", "7 3", "2 3", "9 3 2 3"];
  const stroke = (series) => ({ stroke: color(series.color), "stroke-dasharray": DASHES[(series.dash ?? 0) % 4] });
  const LETTER = 6.8; // pixels, at most, of the mean letter
  const cut = (text, room) => {
    const most = Math.max(Math.floor(room / LETTER), 3);
    return text.length > most ? `${text.slice(0, most - 1)}…` : text;
  };
  const number = (value) => {
    if (value === null || value === undefined) return "-";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e6 || size < 1e-3) return value.toExponential(2).replace(/\.?0*e\+?/, "e");
    return String(+value.toPrecision(4));
  };
  const whole = (value) => (Number.isInteger(value) ? value.toLocaleString("en-US") : number(value));

  // Round values between two ends, about `count` of them.
  const ticks = (low, high, count) => {
    const raw = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= raw * 0.999);
    const found = [];
    for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++)
      found.push(+(n * step).toPrecision(12));
    return found;
  };
  const logTicks = (low, high) => {
    const found = [];
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const every = Math.max(1, Math.ceil((last - first) / 6));
    for (let n = first; n <= last; n += every)
      for (const part of last - first < 3 ? [1, 2, 5] : [1]) found.push(part * 10 ** n);
    return found.filter((n) => n >= low * 0.999 && n <= high * 1.001);
  };
  const scale = (low, high, from, to, log) => {
    const f = log ? Math.log10 : (v) => v;
    const a = f(low), b = f(high);
    return (v) => from + ((f(v) - a) / (b - a || 1)) * (to - from);
  };
  const extent = (values, log) => {
    let low = Infinity, high = -Infinity;
    for (const v of values) {
      if (v === null || (log && v <= 0)) continue;
      if (v < low) low = v;
      if (v > high) high = v;
    }
    if (low > high) return null;
    if (low === high) {
      if (log) return [low / 2, high * 2];
      const room = Math.abs(low) * 0.1 || 1;
      return [low - room, high + room];
    }
    if (log) return [low / 1.1, high * 1.1];
    const room = (high - low) * 0.05;
    return [low - room, high + room];
  };

  // The labels below an axis, without labels that would touch the previous one.
  const foot = (grid, marks, bottom) => {
    let end = -Infinity;
    for (const [x, text] of marks) {
      const half = (text.length * LETTER) / 2;
      if (x - half < end) continue;
      grid.append(svg("text", { x, y: bottom + 16, "text-anchor": "middle" }, text));
      end = x + half + 4;
    }
  };

  // Makes an empty drawing with two axes, and returns it with its scales and edges.
  const frame = (holder, x, y, options = {}) => {
    const width = Math.max(holder.clientWidth || 560, 260), height = options.height || 240;
    const left = options.left || 58, right = width - 24, top = 10;
    const bottom = height - (options.foot || (options.label ? 42 : 28));
    const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0 });
    const across = scale(x[0], x[1], left, right, options.logX);
    const up = options.flip ? scale(y[0], y[1], top, bottom) : scale(y[0], y[1], bottom, top, options.log);
    const grid = svg("g", { class: "grid" });
    let free = Infinity; // where the next label fits
    for (const v of options.log ? logTicks(...y) : ticks(...y, 5)) {
      grid.append(svg("line", { x1: left, x2: right, y1: up(v), y2: up(v) }));
      if (!options.flip && up(v) > free) continue;
      grid.append(svg("text", { x: left - 6, y: up(v) + 4, "text-anchor": "end" }, number(v)));
      free = up(v) - 14;
    }
    const marks = options.names ? [] : options.logX ? logTicks(...x) : ticks(...x, Math.max(width / 110, 4));
    foot(grid, marks.map((v) => [across(v), options.whole ? whole(v) : number(v)]), bottom);
    grid.append(svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
    if (options.label)
      grid.append(svg("text", { x: right, y: height - 6, "text-anchor": "end" }, options.label));
    made.append(grid);
    return { made, across, up, left, right, top, bottom, width, height };
  };

  // The moving average, corrected for its start, with null for missing values.
  const smoothed = (values, weight) => {
    if (!weight) return values;
    let past = 0, norm = 0;
    return values.map((v) => {
      past = weight * past + (1 - weight) * v;
      norm = weight * norm + (1 - weight);
      return past / norm;
    });
  };
  const path = (xs, ys, across, up, log) => {
    let text = "", pen = "M";
    ys.forEach((v, n) => {
      if (v === null || (log && v <= 0)) { pen = "M"; return; }
      text += `${pen}${across(xs[n]).toFixed(1)} ${up(v).toFixed(1)}`;
      pen = "L";
    });
    return text;
  };
  const nearest = (xs, x) => {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] < x) low = middle; else high = middle;
    }
    return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
  };

  const tip = html("div", { class: "tip", role: "presentation" });
  document.body.append(tip);
  const showTip = (event, lines) => {
    tip.replaceChildren(...lines.map(([name, value, n]) => {
      const row = html("div");
      if (n !== null) row.append(html("i", { style: `background:${color(n)}` }));
      row.append(html("span", {}, name), html("b", {}, value));
      return row;
    }));
    tip.style.display = "block";
    const wide = tip.offsetWidth, high = tip.offsetHeight;
    const x = event.clientX + 14 + wide > innerWidth ? event.clientX - wide - 14 : event.clientX + 14;
    const y = Math.min(event.clientY + 12, innerHeight - high - 8);
    tip.style.left = `${Math.max(x, 4)}px`;
    tip.style.top = `${Math.max(y, 4)}px`;
  };
  const hideTip = () => { tip.style.display = "none"; };

  const describe = (chart, shown) => shown.map(({ series }) => {
    const last = series.y.length - 1;
    const bad = series.bad.length ? `, ${series.bad.length} values not finite` : "";
    if (last < 0) return `${series.name || "value"}: no finite value${bad}`;
    return `${series.name || "value"}: from ${number(series.y[0])} at step ${whole(series.x[0])} to ` +
      `${number(series.y[last])} at step ${whole(series.x[last])}${bad}`;
  }).join("; ");

  const lines = (figure, chart) => {
    chart.series.forEach((series, n) => { series.color ??= n; series.dash ??= Math.floor(series.color / 8); });
    const holder = figure.querySelector(".plot"), hidden = new Set();
    const legend = figure.querySelector(".legend");
    chart.series.forEach((series, n) => {
      const button = html("button", { type: "button", "aria-pressed": "true" });
      const mark = svg("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" });
      mark.append(svg("line", { x1: 0, x2: 22, y1: 4, y2: 4,
        "stroke-width": 2.5, ...stroke(series) }));
      button.append(mark, html("span", {}, series.name || chart.name));
      button.addEventListener("click", () => {
        if (!hidden.delete(n)) hidden.add(n);
        button.setAttribute("aria-pressed", String(!hidden.has(n)));
        draw();
      });
      legend.append(button);
    });
    let at = null;
    const draw = () => {
      const shown = chart.series.filter((_, n) => !hidden.has(n)).map((series) => ({ series, n: series.color }));
      const y = extent(shown.flatMap(({ series }) => series.y), state.log);
      const steps = shown.flatMap(({ series }) => [...series.x, ...series.bad.map((b) => b[0])]);
      let x = extent(steps, false);
      if (!y || !x) {
        const why = shown.length ? (state.log ? "no positive value" : "no finite value") : "no curve chosen";
        const bad = shown.flatMap(({ series }) => series.bad.slice(0, 1));
        const more = bad.length ? `: ${bad[0][1]} at step ${whole(bad[0][0])}` : "";
        holder.replaceChildren(html("p", { class: "none" }, why + more));
        return;
      }
      const ends = [Math.min(...bounds(steps)), Math.max(...bounds(steps))];
      x = ends[0] === ends[1] ? x : ends;
      const it = frame(holder, x, y, { log: state.log && !chart.flip, flip: chart.flip, whole: true, label: data.x || "step" });
      it.made.setAttribute("aria-label", `${chart.name}. ${describe(chart, shown)}`);
      for (const { series, n } of shown) {
        const style = { ...stroke(series), class: "curve" };
        if (state.smooth)
          it.made.append(svg("path", { ...style, class: "curve raw", d: path(series.x, series.y, it.across, it.up, state.log) }));
        const ys = smoothed(series.y, state.smooth);
        it.made.append(svg("path", { ...style, d: path(series.x, ys, it.across, it.up, state.log) }));
        if (series.x.length < 30)
          series.x.forEach((step, i) => {
            if (!state.log || series.y[i] > 0)
              it.made.append(svg("circle", { cx: it.across(step), cy: it.up(ys[i]), r: 2.5, fill: color(n) }));
          });
        for (const [step, what] of series.bad) {
          const mark = svg("text", { class: "bad", x: it.across(step), y: it.top + 10, fill: color(n), "text-anchor": "middle" }, "▲");
          mark.append(svg("title", {}, `${series.name || chart.name}: ${what} at step ${whole(step)}`));
          it.made.append(mark);
        }
      }
      const cursor = svg("g", { class: "cursor" });
      it.made.append(cursor);
      const point = (step, event) => {
        at = step;
        cursor.replaceChildren(svg("line", { x1: it.across(step), x2: it.across(step), y1: it.top, y2: it.bottom }));
        const rows = [];
        for (const { series, n } of shown) {
          if (!series.x.length) continue;
          const i = nearest(series.x, step);
          const off = Math.abs(it.across(series.x[i]) - it.across(step)) > 12;
          if (off) continue;
          if (!state.log || series.y[i] > 0)
            cursor.append(svg("circle", { cx: it.across(series.x[i]), cy: it.up(series.y[i]), r: 4, fill: color(n) }));
          const where = series.x[i] === step ? "" : ` @${whole(series.x[i])}`;
          rows.push([series.name || chart.name, number(series.y[i]) + where, n]);
        }
        showTip(event, [[data.x || "step", whole(step), null], ...rows.slice(0, 14)]);
        return rows;
      };
      const all = [...new Set(steps)].sort((a, b) => a - b);
      const invert = (pixel) => x[0] + ((pixel - it.left) / (it.right - it.left)) * (x[1] - x[0]);
      const clear = () => { cursor.replaceChildren(); hideTip(); };
      it.made.addEventListener("pointermove", (event) => {
        const box = it.made.getBoundingClientRect();
        const pixel = ((event.clientX - box.left) / box.width) * it.width;
        point(all[nearest(all, invert(pixel))], event);
      });
      it.made.addEventListener("pointerleave", clear);
      it.made.addEventListener("blur", clear);
      it.made.addEventListener("keydown", (event) => {
        const now = at === null ? -1 : nearest(all, at), last = all.length - 1;
        const big = Math.max(1, Math.round(all.length / 20));
        const to = { ArrowRight: now + 1, ArrowLeft: now < 0 ? last : now - 1, PageUp: now + big,
          PageDown: now - big, Home: 0, End: last }[event.key];
        if (event.key === "Escape") { at = null; clear(); }
        if (to === undefined) return;
        event.preventDefault();
        const step = all[Math.max(0, Math.min(last, to))];
        const box = it.made.getBoundingClientRect();
        const place = { clientX: box.left + (it.across(step) / it.width) * box.width, clientY: box.top + 30 };
        const rows = point(step, place);
        said.textContent = `${data.x || "step"} ${whole(step)}: ` + rows.map(([name, value]) => `${name} ${value}`).join(", ");
      });
      holder.replaceChildren(it.made);
    };
    return draw;
  };
  // Spread arguments overflow the stack of long arrays.
  const bounds = (values) => values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);

  const points = (figure, chart) => () => {
    const holder = figure.querySelector(".plot");
    const names = chart.names, xs = chart.points.map((p) => p.x);
    const y = extent(chart.points.map((p) => p.y), false);
    const x = names ? [-0.6, names.length - 0.4] : extent(xs, chart.log);
    if (!x || !y) { holder.replaceChildren(html("p", { class: "none" }, "no finite value")); return; }
    const tight = names && names.some((name) => name.length * LETTER > (holder.clientWidth - 90) / names.length);
    const it = frame(holder, x, y, { logX: chart.log, names, label: names ? "" : chart.x, foot: tight ? 76 : 0 });
    it.made.setAttribute("aria-label", `${chart.name}: ${chart.points.length} points. ${chart.said || ""}`);
    for (const [n, name] of (names || []).entries()) label(it, n, name, tight);
    for (const p of chart.points) dot(it, p);
    holder.replaceChildren(it.made);
  };
  // The name of a category, slanted like all others if one of them is too wide.
  const label = (it, n, name, slanted) => {
    const x = it.across(n), y = it.bottom + (slanted ? 12 : 16);
    const turned = { "text-anchor": "end", transform: `rotate(-45 ${x} ${y})` };
    const text = svg("text", { x, y, ...(slanted ? turned : { "text-anchor": "middle" }), class: "name" },
      slanted ? cut(name, 76) : name);
    text.append(svg("title", {}, name));
    it.made.append(text);
  };
  const dot = (it, p) => {
    const made = svg("circle", { cx: it.across(p.x), cy: it.up(p.y), r: 4, class: p.best ? "dot best" : "dot" });
    made.append(svg("title", {}, p.said));
    it.made.append(made);
  };

  // A row for each group: its name, and below it a box plot or a density, with every run as a point.
  const boxes = (figure, chart) => {
    const draw = () => {
      const holder = figure.querySelector(".plot");
      const x = extent(chart.groups.flatMap((g) => g.points.map((p) => p.y)), false);
      if (!x) { holder.replaceChildren(html("p", { class: "none" }, "no finite value")); return; }
      const width = Math.max(holder.clientWidth || 560, 260), row = 48, left = 24, right = width - 24;
      const bottom = row * chart.groups.length, across = scale(x[0], x[1], left, right);
      const made = svg("svg", { viewBox: `0 0 ${width} ${bottom + 28}`, role: "img", tabindex: 0 });
      made.setAttribute("aria-label", `${chart.name}. ` + chart.groups.map((g) =>
        `${g.name}: median ${number(g.box[2])} of ${g.points.length}`).join("; "));
      const grid = svg("g", { class: "grid" }), marks = ticks(...x, Math.max(width / 110, 4));
      made.append(grid);
      foot(grid, marks.map((v) => [across(v), number(v)]), bottom);
      grid.append(svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
      chart.groups.forEach((g, n) => {
        const top = row * n + 20, end = row * (n + 1) - 2, at = (top + end) / 2, wide = (end - top) / 2 - 2;
        for (const v of marks) grid.append(svg("line", { x1: across(v), x2: across(v), y1: top, y2: end }));
        const name = svg("text", { x: left, y: top - 6, class: g.best ? "head" : "name" }, cut(g.name, right - left));
        name.append(svg("title", {}, g.name));
        made.append(name);
        const [low, q1, middle, q3, high] = g.box.map(across);
        const group = svg("g", { class: g.best ? "box best" : "box" });
        if (chart.violin && g.density) {
          const side = (sign) => g.density.map(([v, d]) => [across(v), at + sign * d * wide]);
          const around = [...side(1), ...side(-1).reverse()];
          group.append(svg("path", { d: `M${around.map((p) => p.map((v) => v.toFixed(1)).join(" ")).join("L")}Z` }));
        } else if (!chart.violin) {
          group.append(svg("line", { x1: low, x2: high, y1: at, y2: at }),
            svg("rect", { x: q1, width: Math.max(q3 - q1, 0.5), y: at - wide, height: 2 * wide }));
        }
        group.append(svg("line", { class: "middle", x1: middle, x2: middle, y1: at - wide, y2: at + wide }));
        made.append(group);
        g.points.forEach((p, i) => {
          const aside = g.points.length > 1 ? (i / (g.points.length - 1) - 0.5) * wide : 0;
          dot({ made, across, up: (v) => v }, { x: p.y, y: at + aside, said: p.said });
        });
      });
      holder.replaceChildren(made);
    };
    const kind = figure.querySelector("[data-kind]");
    if (kind) kind.addEventListener("change", () => { chart.violin = kind.value === "violin"; draw(); });
    return draw;
  };

  // A column for each parameter and one for the result, and a line across them for each trial.
  const parallel = (figure, chart) => () => {
    const holder = figure.querySelector(".plot"), last = chart.axes.length - 1;
    const height = 320, top = 44, bottom = height - 20;
    const columns = chart.axes.map((axis) => {
      const ends = axis.names ? [-0.3, axis.names.length - 0.7] : extent(axis.values, axis.log) || [0, 1];
      const marks = axis.names ? axis.names.map((name, i) => [i, cut(name, 90)])
        : (axis.log ? logTicks(...ends) : ticks(...ends, 4)).map((v) => [v, number(v)]);
      const wide = Math.max(...marks.map(([, text]) => text.length), 3) * LETTER + 10;
      return { axis, marks, wide, up: scale(ends[0], ends[1], bottom, top, axis.log) };
    });
    const used = columns.reduce((sum, column) => sum + column.wide, 0);
    const width = Math.max(holder.clientWidth || 800, used + 100 * last);
    const gap = (width - used) / Math.max(last, 1);
    columns.reduce((x, column) => { column.left = x; column.right = x + column.wide; return column.right + gap; }, 0);
    const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, style: `width:${width}px`,
      "aria-label": `${chart.rows.length} trials over ${chart.axes.map((a) => a.name).join(", ")}` });
    const all = svg("g", { class: "trials" });
    const order = [...chart.rows].sort((a, b) => a.best - b.best || (a.rank ?? -1) - (b.rank ?? -1));
    for (const row of order) {
      const y = row.values.map((v, n) => (v === null ? null : columns[n].up(v).toFixed(1)));
      const parts = columns.slice(1).map((column, n) => (y[n] === null || y[n + 1] === null ? ""
        : `M${columns[n].right.toFixed(1)} ${y[n]}L${column.left.toFixed(1)} ${y[n + 1]}`));
      const line = svg("path", { d: parts.join(""), tabindex: -1, class: row.best ? "best" : "",
        stroke: row.rank === null ? "var(--faint)" : `color-mix(in oklab, var(--c1) ${Math.round(row.rank * 100)}%, var(--c0))` });
      line.append(svg("title", {}, row.said));
      line.addEventListener("pointerenter", () => { line.classList.add("near"); all.append(line); });
      line.addEventListener("pointerleave", () => line.classList.remove("near"));
      all.append(line);
    }
    made.append(all);
    columns.forEach(({ axis, marks, wide, left, right, up }, n) => {
      const group = svg("g", { class: "grid" }), middle = (left + right) / 2;
      group.append(svg("rect", { class: "column", x: left, y: top - 12, width: wide, height: bottom - top + 24, rx: 4 }));
      const end = n === 0 ? "start" : n === last ? "end" : "middle";
      const room = n === 0 || n === last ? wide + gap / 2 : wide + gap;
      const x = { start: left, end: right, middle }[end];
      const head = svg("text", { class: "head", x, y: 16, "text-anchor": end }, cut(axis.name, room - 12));
      head.append(svg("title", {}, axis.name));
      group.append(head);
      let free = Infinity;
      for (const [v, text] of marks) {
        if (up(v) > free) continue;
        group.append(svg("text", { x: middle, y: up(v) + 4, "text-anchor": "middle" }, text));
        free = up(v) - 13;
      }
      made.append(group);
    });
    holder.replaceChildren(made);
  };

  const kinds = { lines, points, boxes, parallel };
  const figures = document.querySelectorAll("figure[data-chart]");
  const seen = figures.length > 24 && "IntersectionObserver" in window ? new IntersectionObserver((found) => {
    for (const each of found) if (each.isIntersecting) each.target.show();
  }, { rootMargin: "400px" }) : null;
  for (const figure of figures) {
    const chart = data.charts[+figure.dataset.chart], draw = kinds[chart.kind || "lines"](figure, chart);
    const each = { figure, chart, done: false, draw: () => { if (each.done) draw(); } };
    figure.show = () => { if (!each.done) { each.done = true; draw(); } };
    drawn.push(each);
    if (seen) seen.observe(figure); else figure.show();
  }
  const again = () => drawn.forEach((each) => each.draw());
  const showAll = () => drawn.forEach((each) => each.figure.show());
  addEventListener("beforeprint", showAll);
  let width = innerWidth, later = 0;
  addEventListener("resize", () => {
    clearTimeout(later);
    later = setTimeout(() => { if (innerWidth !== width) { width = innerWidth; again(); } }, 100);
  });

  const on = (id, event, act) => {
    const found = document.getElementById(id);
    if (found) { found.addEventListener(event, () => act(found)); act(found, true); }
  };
  on("log", "change", (box) => { state.log = box.checked; again(); });
  on("smooth", "input", (slider) => {
    state.smooth = +slider.value;
    document.getElementById("smooth-value").textContent = state.smooth.toFixed(2);
    again();
  });
  on("filter", "input", (field) => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const { figure, chart } of drawn) {
      if (!figure.classList.contains("curves")) continue;
      figure.hidden = !words.every((word) => chart.name.toLowerCase().includes(word));
      count += !figure.hidden;
    }
    again(); // hidden charts had no width
    const left = document.getElementById("filter-count");
    if (left) left.textContent = words.length ? `${count} shown` : "";
  });
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  on("theme", "click", (button, first) => {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : dark.matches;
    if (!first) root.dataset.theme = isDark ? "light" : "dark";
    button.textContent = (first ? isDark : !isDark) ? "Light" : "Dark";
  });
  for (const button of document.querySelectorAll("button[data-copy]"))
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.copy).textContent;
      try { await navigator.clipboard.writeText(text); said.textContent = button.textContent = "Copied"; } catch {
        getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
      }
    });
  root.dataset.ready = "yes";
})();
