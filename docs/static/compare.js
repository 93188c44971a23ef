// The comparison of runs of record: a setting, methods and a metric are chosen. Curves are drawn from the runs in window.RUNS; the cells
// of the table are in it as text, so that no statistic is computed twice.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const runs = window.RUNS;
  const root = document.getElementById("compare");
  if (!root || !runs) return;
  const svgName = "http://www.w3.org/2000/svg";
  const make = (name, attributes = {}, ...children) => {
    const node = document.createElement(name);
    Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
    node.append(...children);
    return node;
  };
  const draw = (name, attributes, text = "") => {
    const node = document.createElementNS(svgName, name);
    Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
    node.textContent = text;
    return node;
  };

  const setting = make("select", { "aria-label": "setting" });
  Object.entries(runs.settings).forEach(([name, own]) => {
    const methods = new Set(own.map((run) => run.method)).size;
    setting.append(new Option(`${name} (${methods} ${methods === 1 ? "method" : "methods"}, ${own.length} ${own.length === 1 ? "run" : "runs"})`, name));
  });
  const metric = make("select", { "aria-label": "metric" });
  Object.entries(runs.metrics).forEach(([name, words]) => metric.append(new Option(words, name)));
  const reference = make("select", { "aria-label": "reference" });
  const methods = make("div", { class: "choices", role: "group", "aria-label": "methods" });
  const picture = make("div");
  const table = make("div", { class: "wide" });
  root.append(
    make("div", { class: "choices" }, make("label", {}, "data and setting", setting)),
    make("div", { class: "choices" }, make("label", {}, "metric", metric), make("label", {}, "differences to", reference)),
    methods, picture, table,
  );

  const byMethod = () => {
    const found = new Map();
    runs.settings[setting.value].forEach((run) => {
      if (!found.has(run.method)) found.set(run.method, []);
      found.get(run.method).push(run);
    });
    return found;
  };
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const look = (name) => runs.looks[name];

  // A point where every seed has one: the mean of the others is no mean of the method's.
  function curve(own) {
    const rounds = Math.max(...own.map((run) => run.curves[metric.value].length));
    const points = [];
    for (let round = 0; round < rounds; round += 1) {
      const values = own.map((run) => run.curves[metric.value][round]).filter((value) => value !== null && value !== undefined);
      if (values.length === own.length) points.push({ round: round + 1, mean: mean(values), low: Math.min(...values), high: Math.max(...values) });
    }
    return points;
  }

  function showPicture(chosen) {
    const width = Math.max(320, picture.clientWidth);  // letters keep their size on a narrow screen
    const letters = width < 560 ? 12 : 24;  // of the label behind a curve
    const height = 360, left = 44, right = 8 + 7 * letters, top = 12, bottom = 40;
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": runs.metrics[metric.value] });
    const curves = chosen.map(([name, own]) => [name, curve(own)]).filter(([, points]) => points.length);
    const all = curves.flatMap(([, points]) => points);
    picture.replaceChildren(svg);
    if (!all.length) return;
    const rounds = Math.max(...all.map((point) => point.round));
    let low = Math.min(...all.map((point) => point.low));
    let high = Math.max(...all.map((point) => point.high));
    if (high - low < 1e-9) { low -= 1; high += 1; }
    const size = (high - low) / 5;
    const unit = 10 ** Math.floor(Math.log10(size));
    const step = unit * [1, 2, 5, 10].find((one) => one * unit >= size);
    low = Math.floor(low / step) * step;
    high = Math.ceil(high / step) * step;
    const digits = Math.max(0, -Math.floor(Math.log10(step)));
    const x = (round) => left + ((round - 1) / Math.max(1, rounds - 1)) * (width - left - right);
    const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
    for (let value = low; value <= high + step / 2; value += step) {
      svg.append(draw("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), class: "axis" }));
      svg.append(draw("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(digits)));
    }
    for (let place = 0; place <= 4; place += 1) {
      const round = Math.round(1 + (place / 4) * (rounds - 1));
      svg.append(draw("text", { x: x(round), y: height - bottom + 18, "text-anchor": "middle" }, String(round)));
    }
    svg.append(draw("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, "round"));
    curves.forEach(([name, points]) => {
      const { colour, dash } = look(name);
      const outline = [...points.map((p) => `${x(p.round)},${y(p.high)}`), ...points.slice().reverse().map((p) => `${x(p.round)},${y(p.low)}`)];
      svg.append(draw("polygon", { points: outline.join(" "), fill: colour, opacity: 0.12 }));
      const line = { points: points.map((p) => `${x(p.round)},${y(p.mean)}`).join(" "), fill: "none", stroke: colour, "stroke-width": 2.2 };
      svg.append(draw("polyline", dash ? { ...line, "stroke-dasharray": dash } : line));
      points.forEach((p) => {
        const dot = draw("circle", { cx: x(p.round), cy: y(p.mean), r: points.length > 40 ? 1.4 : 3.2, fill: colour });
        dot.append(draw("title", {}, `${name}, round ${p.round}: ${p.mean.toFixed(2)}`));
        svg.append(dot);
      });
    });
    const apart = Math.min(15, (height - top - bottom) / curves.length);
    let below = height - bottom;
    curves.map(([name, points]) => [name, points[points.length - 1]]).sort(([, a], [, b]) => a.mean - b.mean).forEach(([name, last], place) => {
      const above = top + apart * (curves.length - place - 1);  // of the lines that are still to come
      const height = Math.max(above, Math.min(y(last.mean), below));
      below = height - apart;
      const short = name.length > letters ? `${name.slice(0, letters - 1)}…` : name;
      const label = draw("text", { x: x(last.round) + 6, y: height + 4, class: "label", style: `fill:${look(name).colour}` }, short);
      label.append(draw("title", {}, name));
      svg.append(label);
    });
  }

  const keys = (own) => make("details", {}, make("summary", {}, String(own.length)), own.map((run) => run.key).join(", "));

  function showTable(chosen) {
    const heads = ["method", "last round", `difference to ${reference.value}, paired by seed`, "runs"];
    const body = make("tbody");
    chosen.forEach(([name, own]) => {
      const row = runs.tables[setting.value][metric.value][name];
      const dash = look(name).dash ? "dashed" : "solid";
      const swatch = make("span", { class: "swatch", style: `border-top-color:${look(name).colour};border-top-style:${dash}` });
      const cells = [[swatch, ` ${name}`], [row.last], [row.differences[reference.value] ?? "–"], [keys(own)]];
      body.append(make("tr", {}, ...cells.map((parts, place) => make("td", { "data-label": heads[place] }, ...parts))));
    });
    const head = make("tr", {}, ...heads.map((text) => make("th", {}, text)));
    table.replaceChildren(make("table", { class: "data" }, make("thead", {}, head), body));
  }

  function show() {
    const found = byMethod();
    const ticked = new Set([...methods.querySelectorAll("input:checked")].map((box) => box.value));
    const chosen = [...found].filter(([name]) => ticked.has(name));
    showPicture(chosen);
    showTable(chosen);
  }

  function changeSetting() {
    const names = [...byMethod().keys()];
    const first = runs.first[setting.value];  // the reference, and the best: few enough to tell their curves apart
    reference.replaceChildren(...names.map((name) => new Option(name, name)));
    [reference.value] = first;
    methods.replaceChildren(...names.map((name) => {
      const box = make("input", { type: "checkbox", value: name });
      box.checked = first.includes(name);
      return make("label", {}, box, name);
    }));
    show();
  }

  setting.addEventListener("input", changeSetting);
  [metric, reference, methods].forEach((node) => node.addEventListener("input", show));
  window.addEventListener("resize", show);
  changeSetting();
});
