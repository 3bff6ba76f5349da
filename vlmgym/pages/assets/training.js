// The curves of a training: raw and smoothed, of the main metrics and of all.

function show() {
  showHead(page.title, [page.lead.join("; ")]);
  const chart = (metric) => {
    const figure = element("figure", { class: "curve panel" });
    fillCurve(figure, metric.title || metric.name, "step", [{ run: 0, ...metric }], true, [
      element("span", { class: "key run-0" }, "moving average"), element("span", { class: "key single" }, "each step")]);
    return figure;
  };
  const charts = (titled) => page.metrics.filter(({ title }) => Boolean(title) === titled).map(chart);
  const open = document.querySelector("details")?.open ?? false;
  const others = charts(false);
  content.replaceChildren(...[
    page.metrics.length ? element("h2", {}, "Curves") : element("p", { class: "panel empty" }, "No step has ended yet; curves appear here by themselves."),
    element("div", { class: "curves small" }, charts(true)),
    others.length ? element("details", { class: "panel", open }, element("summary", {}, `Other metrics (${others.length})`),
      element("div", { class: "curves small" }, others)) : null,
    page.inside.length ? element("h2", {}, "Runs of this training") : null,
    element("ul", {}, page.inside.map(([name, href]) => element("li", {}, element("a", { href }, recorded(name))))),
  ].filter(Boolean));
}

const content = element("div");
document.getElementById("main").append(content);
show();
listen(async ({ changed }) => {
  if (!(page.live.runs[0] in changed)) return;
  Object.assign(page, await ask("data", { run: page.live.runs[0] }));
  show();
});
