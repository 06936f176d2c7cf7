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
  const color = (n) => `var(--c${n % 8})`;
  const dash = (n) => ["", "7 3", "2 3", "9 3 2 3"][Math.floor(n / 8) % 4];
  const number = (value) => {
    if (value === null || value === undefined) return "-";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e6 || size < 1e-3) return value.toExponential(2).replace("e+", "e");
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

  // An empty drawing with two axes; returns what draws into it.
  const frame = (holder, x, y, options = {}) => {
    const width = Math.max(holder.clientWidth || 560, 260), height = options.height || 240;
    const left = options.left || 58, right = width - 24, top = 10, bottom = height - 30;
    const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0 });
    const across = scale(x[0], x[1], left, right, options.logX);
    const up = options.flip ? scale(y[0], y[1], top, bottom) : scale(y[0], y[1], bottom, top, options.log);
    const grid = svg("g", { class: "grid" });
    for (const v of options.log ? logTicks(...y) : ticks(...y, 5)) {
      grid.append(svg("line", { x1: left, x2: right, y1: up(v), y2: up(v) }));
      grid.append(svg("text", { x: left - 6, y: up(v) + 4, "text-anchor": "end" }, number(v)));
    }
    for (const v of options.names ? [] : options.logX ? logTicks(...x) : ticks(...x, width / 110)) {
      const at = { x: across(v), y: bottom + 16, "text-anchor": "middle" };
      grid.append(svg("text", at, options.whole ? whole(v) : number(v)));
    }
    grid.append(svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
    if (options.label)
      grid.append(svg("text", { x: right, y: height - 2, "text-anchor": "end" }, options.label));
    made.append(grid);
    return { made, across, up, left, right, top, bottom, width, height };
  };

  // Of a moving average, corrected for its start; null where there is no value.
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
    chart.series.forEach((series, n) => { series.color ??= n; });
    const holder = figure.querySelector(".plot"), hidden = new Set();
    const legend = figure.querySelector(".legend");
    chart.series.forEach((series, n) => {
      const button = html("button", { type: "button", "aria-pressed": "true" });
      const mark = svg("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" });
      mark.append(svg("line", { x1: 0, x2: 22, y1: 4, y2: 4, stroke: color(series.color),
        "stroke-width": 2.5, "stroke-dasharray": dash(series.color) }));
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
        const style = { stroke: color(n), "stroke-dasharray": dash(n), class: "curve" };
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
    const it = frame(holder, x, y, { logX: chart.log, names, label: names ? "" : chart.x });
    it.made.setAttribute("aria-label", `${chart.name}: ${chart.points.length} points. ${chart.said || ""}`);
    label(it, names);
    for (const p of chart.points) dot(it, p);
    holder.replaceChildren(it.made);
  };
  const label = (it, names) => (names || []).forEach((name, n) => {
    const most = Math.max(6, Math.floor((it.across(1) - it.across(0)) / 6.5));
    const short = name.length > most ? `${name.slice(0, most - 1)}…` : name;
    const text = svg("text", { x: it.across(n), y: it.bottom + 16, "text-anchor": "middle", class: "name" }, short);
    text.append(svg("title", {}, name));
    it.made.append(text);
  });
  const dot = (it, p, aside = 0) => {
    const made = svg("circle", { cx: it.across(p.x + aside), cy: it.up(p.y), r: 4, class: p.best ? "dot best" : "dot" });
    made.append(svg("title", {}, p.said));
    it.made.append(made);
  };

  // Boxes with whiskers, or densities, one above each name, and every run as a point.
  const boxes = (figure, chart) => {
    const draw = () => {
      const holder = figure.querySelector(".plot");
      const y = extent(chart.groups.flatMap((g) => g.points.map((p) => p.y)), false);
      if (!y) { holder.replaceChildren(html("p", { class: "none" }, "no finite value")); return; }
      const names = chart.groups.map((g) => g.name);
      const it = frame(holder, [-0.6, names.length - 0.4], y, { names, height: 280 });
      it.made.setAttribute("aria-label", `${chart.name}. ` + chart.groups.map((g) =>
        `${g.name}: median ${number(g.box[2])} of ${g.points.length}`).join("; "));
      label(it, names);
      const unit = it.across(1) - it.across(0), wide = Math.min(unit * 0.32, 40);
      chart.groups.forEach((g, n) => {
        const at = it.across(n), [low, q1, middle, q3, high] = g.box.map(it.up);
        const group = svg("g", { class: g.best ? "box best" : "box" });
        if (chart.violin && g.density) {
          const side = (sign) => g.density.map(([v, d]) => [at + sign * d * wide, it.up(v)]);
          const around = [...side(1), ...side(-1).reverse()];
          group.append(svg("path", { d: `M${around.map((p) => p.map((v) => v.toFixed(1)).join(" ")).join("L")}Z` }));
        } else if (!chart.violin) {
          group.append(svg("line", { x1: at, x2: at, y1: low, y2: high }),
            svg("rect", { x: at - wide / 2, width: wide, y: q3, height: Math.max(q1 - q3, 0.5) }));
        }
        group.append(svg("line", { class: "middle", x1: at - wide / 2, x2: at + wide / 2, y1: middle, y2: middle }));
        it.made.append(group);
        g.points.forEach((p, i) => {
          const aside = g.points.length > 1 ? ((i / (g.points.length - 1)) - 0.5) * Math.min(0.3, wide / unit) : 0;
          dot(it, { x: n, y: p.y, said: p.said }, aside);
        });
      });
      holder.replaceChildren(it.made);
    };
    const kind = figure.querySelector("[data-kind]");
    if (kind) kind.addEventListener("change", () => { chart.violin = kind.value === "violin"; draw(); });
    return draw;
  };

  // An axis for each parameter and one for the result; a line for each trial.
  const parallel = (figure, chart) => () => {
    const holder = figure.querySelector(".plot");
    const width = Math.max(holder.clientWidth || 800, 90 * chart.axes.length), height = 320;
    const top = 34, bottom = height - 26, left = 50, right = width - 60;
    const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0,
      "aria-label": `${chart.rows.length} trials over ${chart.axes.map((a) => a.name).join(", ")}` });
    const at = (n) => (chart.axes.length < 2 ? left : left + (n / (chart.axes.length - 1)) * (right - left));
    const ups = chart.axes.map((axis) => {
      if (axis.names) return (v) => scale(-0.3, axis.names.length - 0.7, bottom, top)(v);
      const ends = extent(axis.values, axis.log) || [0, 1];
      return scale(ends[0], ends[1], bottom, top, axis.log);
    });
    const all = svg("g", { class: "trials" });
    const order = [...chart.rows].sort((a, b) => (a.rank ?? -1) - (b.rank ?? -1));
    for (const row of order) {
      const d = path(row.values.map((_, n) => n), row.values.map((v, n) => (v === null ? null : ups[n](v))), at, (v) => v, false);
      const line = svg("path", { d, tabindex: -1, class: row.best ? "best" : "",
        stroke: row.rank === null ? "var(--faint)" : `color-mix(in oklab, var(--c1) ${Math.round(row.rank * 100)}%, var(--c0))` });
      line.append(svg("title", {}, row.said));
      line.addEventListener("pointerenter", () => { line.classList.add("near"); all.append(line); });
      line.addEventListener("pointerleave", () => line.classList.remove("near"));
      all.append(line);
    }
    made.append(all);
    chart.axes.forEach((axis, n) => {
      const group = svg("g", { class: "grid" }), x = at(n);
      group.append(svg("line", { class: "axis", x1: x, x2: x, y1: top, y2: bottom }));
      const short = axis.name.length > 18 ? `…${axis.name.slice(-17)}` : axis.name;
      const head = svg("text", { class: "head", x, y: 14, "text-anchor": "middle" }, short);
      head.append(svg("title", {}, axis.name));
      group.append(head);
      const ends = axis.names ? null : extent(axis.values, axis.log) || [0, 1];
      const marks = axis.names ? axis.names.map((name, i) => [i, name])
        : (axis.log ? logTicks(...ends) : ticks(...ends, 4)).map((v) => [v, number(v)]);
      for (const [v, text] of marks.slice(0, 20))
        group.append(svg("text", { x: x + 5, y: ups[n](v) + 4 }, text.length > 12 ? `${text.slice(0, 11)}…` : text));
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
