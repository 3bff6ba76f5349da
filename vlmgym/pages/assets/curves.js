// Cumulative reward over turns: single episodes, the mean of each run and its 95% confidence interval.

const MARGIN = { top: 14, right: 16, bottom: 36, left: 56 };

function showCurves() {
  const place = document.getElementById("panel-curves");
  place.replaceChildren(element("h2", {}, "Cumulative reward over turns"),
    element("div", { class: "curves" }, page.games.map((game) => {
      const figure = element("figure", { class: "curve panel" });
      fillFigure(figure, game);
      return figure;
    })));
}

function fillFigure(figure, game) {
  const curves = game.curves.map((curve, run) => ({ run, ...curve })).filter((curve) => curve.mean);
  if (Math.max(0, ...curves.map((curve) => curve.turns.at(-1))) < 2) {
    figure.append(element("figcaption", {}, element("h3", {}, recorded(game.id))), element("p", { class: "faint" }, curves.length
      ? "Every episode has one turn: its score is in the overview." : "No episode has a result."));
    return;
  }
  const words = curves.map(({ run, low, stages, count }) => {
    const label = page.runs.length > 1 ? `${page.runs[run].label}: ` : "";
    const what = low ? "; band: its 95% confidence interval" : stages ? ", all stages together" : "";
    return element("span", { class: `key run-${run}` }, recorded(`${label}mean of ${plural(count, "episode")}${what}`));
  });
  const one = curves.length === 1 && curves[0].single.length > 1;
  fillCurve(figure, game.id, "turn", curves, one, [words, one ? element("span", { class: "key single" }, singleWords(curves[0])) : null]);
}

// A plot of curves {run, turns, mean, low, high, single} over `axis`, which is drawn again when its width changes.
function fillCurve(figure, title, axis, curves, withSingle, keys) {
  const readout = element("span", { class: "readout" });
  const holder = element("div", { class: "plot" });
  figure.append(element("figcaption", {}, element("h3", {}, recorded(title)), readout), holder, element("p", { class: "keys" }, keys));
  const draw = () => {
    const width = Math.floor(holder.clientWidth);
    if (width > 0 && holder.dataset.width !== String(width)) {
      holder.dataset.width = width;
      holder.replaceChildren(plot(`${title}: mean`, axis, curves, width, withSingle, readout));
    }
  };
  new ResizeObserver(draw).observe(holder);
}

function singleWords({ single, count }) {
  return single.length < count ? `first ${single.length} episodes` : "single episodes";
}

function plot(title, axis, curves, width, withSingle, readout) {
  const height = Math.round(Math.min(340, Math.max(220, width * 0.45)));
  const turns = Math.max(...curves.map((curve) => curve.turns.at(-1)), 1);
  const shown = curves.flatMap((curve) => [curve.low ?? curve.mean, curve.high ?? curve.mean, ...(withSingle ? curve.single : [])]);
  let low = Math.min(0, ...shown.map((line) => Math.min(...line)));
  let high = Math.max(...shown.map((line) => Math.max(...line)));
  const digits = high - low < 10 ? 4 : 2;
  if (high <= low) high = low + 1;
  const ticks = niceTicks(low, high, 5);
  high = Math.max(high, ticks.at(-1));
  const right = width - MARGIN.right, bottom = height - MARGIN.bottom;
  const x = (turn) => MARGIN.left + (turn / turns) * (right - MARGIN.left);
  const y = (value) => bottom - ((value - low) / (high - low)) * (bottom - MARGIN.top);
  const svg = drawing("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": `${title} ${curves.map((curve) => number(curve.mean.at(-1), 4)).join(" and ")} after ${plural(turns, axis)}`,
  });
  for (const value of ticks) {
    svg.append(
      drawing("line", { class: "grid", x1: MARGIN.left, x2: right, y1: y(value), y2: y(value) }),
      drawing("text", { x: MARGIN.left - 8, y: y(value) + 4, "text-anchor": "end" }, number(value, 6)),
    );
  }
  for (const turn of niceTicks(0, turns, Math.max(2, Math.floor(width / 110))).filter((t) => t <= turns && Number.isInteger(t))) {
    svg.append(drawing("text", { x: x(turn), y: bottom + 18, "text-anchor": "middle" }, number(turn)));
  }
  svg.append(drawing("text", { x: right, y: height - 3, "text-anchor": "end", class: "axis" }, axis));
  for (const { turns: at, single } of withSingle ? curves : []) {
    for (const line of single) {
      svg.append(drawing("path", { class: "single", d: path(line.map((value, i) => [x(at[i]), y(value)])) }));
      const end = line.length - 1;
      if (end < at.length - 1) svg.append(drawing("circle", { class: "end", cx: x(at[end]), cy: y(line[end]), r: 2.5 }));
    }
  }
  for (const { run, turns: at, low: lows, high: highs } of curves.filter((curve) => curve.low)) {
    const upper = highs.map((value, i) => [x(at[i]), y(value)]);
    const lower = lows.map((value, i) => [x(at[i]), y(value)]).reverse();
    svg.append(drawing("path", { class: `band run-${run}`, d: path([...upper, ...lower]) + "Z" }));
  }
  for (const { run, turns: at, mean } of curves) {
    svg.append(drawing("path", { class: `mean run-${run}`, d: path(mean.map((value, i) => [x(at[i]), y(value)])) }));
  }
  const cursor = drawing("line", { class: "cursor", y1: MARGIN.top, y2: bottom, visibility: "hidden" });
  svg.append(cursor);
  svg.addEventListener("pointermove", (event) => {
    const turn = ((event.clientX - svg.getBoundingClientRect().left - MARGIN.left) / (right - MARGIN.left)) * turns;
    const values = curves.map((curve) => {
      const i = nearest(curve.turns, turn);
      cursor.setAttribute("x1", x(curve.turns[i]));
      cursor.setAttribute("x2", x(curve.turns[i]));
      const interval = curve.low ? ` (${number(curve.low[i])} to ${number(curve.high[i])})` : "";
      return [curve.turns[i], number(curve.mean[i], digits) + interval];
    });
    cursor.setAttribute("visibility", "visible");
    readout.textContent = `${axis} ${values[0][0]}: ${values.map(([, words]) => words).join(" and ")}`;
  });
  svg.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    readout.textContent = "";
  });
  return svg;
}

function path(points) {
  const drawn = points.length > 1 ? points : [...points, ...points]; // a line without length is a dot
  return "M" + drawn.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L");
}

function nearest(sorted, value) {
  let best = 0;
  sorted.forEach((other, i) => { if (Math.abs(other - value) < Math.abs(sorted[best] - value)) best = i; });
  return best;
}

function niceTicks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step < high + step * 0.999; i++) ticks.push(Number((i * step).toPrecision(10)));
  return ticks;
}
