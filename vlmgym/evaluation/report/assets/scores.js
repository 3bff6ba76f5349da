// The head of the page: title, what is missing, a card for each game, tables, what was run.

function showHead() {
  const head = document.getElementById("head");
  const facts = new Map(page.runs[0].facts);
  const lead = page.runs.length > 1
    ? `${GAMES.join(", ")}, played by ${page.runs.map((run) => `${run.label} (${run.policy})`).join(" and ")}`
    : `${facts.get("episodes")}; ${facts.get("turns")}; begun ${facts.get("started").slice(0, 16).replace("T", " ")} UTC`;
  head.append(
    element("p", { class: "maker" }, "vlmgym"),
    element("h1", {}, recorded(page.title)),
    element("p", { class: "lead" }, recorded(lead)),
  );
  for (const run of page.runs) {
    const missing = Object.entries(run.missing).map(([status, count]) => `${number(count)} ${status}`);
    const which = page.runs.length > 1 ? `${run.label}: ` : "";
    const notes = [];
    if (run.stopped) notes.push(`The run was stopped: ${run.stopped}.`);
    if (missing.length) notes.push(`Episodes without a result, which are in no score: ${missing.join(", ")}. ${run.bias}`);
    if (notes.length) head.append(element("p", { class: "banner", role: "note" }, recorded(which + notes.join(" "))));
  }
}

function showScores() {
  const place = document.getElementById("scores");
  for (const game of page.games) {
    const cards = page.runs.map((run, i) => card(game, game.summaries[i], i));
    const curve = element("figure", { class: "curve panel" });
    place.append(
      element("h2", {}, recorded(game.id)),
      element("div", { class: `game runs-${page.runs.length}` }, element("div", { class: "cards" }, cards), curve),
    );
    showCurves(curve, game);
  }
}

function card(game, summary, i) {
  const label = page.runs.length > 1 ? element("p", { class: `label run-${i}` }, recorded(page.runs[i].label)) : null;
  if (!summary) return element("div", { class: "card panel" }, label, element("p", { class: "faint" }, "not played"));
  const interval = summary.score_ci;
  const shares = {
    played: summary.turns ? 1 - summary.illegal_rate - summary.unparsable_rate : 0,
    illegal: summary.illegal_rate ?? 0,
    unparsable: summary.unparsable_rate ?? 0,
  };
  return element("div", { class: "card panel" },
    label,
    element("p", { class: "faint" }, Object.keys(summary.stages).length > 1 ? "mean score, all stages together" : "mean score"),
    element("p", { class: "score" }, summary.score_mean === null ? "none" : number(summary.score_mean)),
    element("p", { class: "faint" }, interval ? `95% interval ${number(interval[0])} to ${number(interval[1])}` : "",
      interval ? element("br") : null, `${plural(summary.episodes, "episode")}, ${plural(summary.turns, "turn")}`),
    summary.turns ? outcomeBar(shares) : null,
    summary.perception_mean === null ? null
      : element("p", { class: "meter" }, element("span", {}, "cells seen right"), element("b", {}, percent(summary.perception_mean))),
    summary.format_mean === null ? null
      : element("p", { class: "meter" }, element("span", {}, "form kept"), element("b", {}, percent(summary.format_mean))),
  );
}

function outcomeBar(shares) {
  const bar = drawing("svg", { class: "bar", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" });
  let x = 0;
  for (const outcome of OUTCOMES) {
    const width = 100 * shares[outcome];
    bar.append(drawing("rect", { class: outcome, x, width, height: 4 }));
    x += width;
  }
  const words = OUTCOMES.map((outcome) =>
    element("span", { class: `key ${outcome}` }, `${outcome} ${percent(shares[outcome])}`));
  return element("div", { class: "outcomes" }, bar, element("p", { class: "keys" }, words));
}

function showTables() {
  const place = document.getElementById("tables");
  for (const table of page.tables) {
    place.append(element("h2", {}, recorded(table.title)), scrolled(table.title, rowsOf(table.columns, table.rows)));
    if (table.note) place.append(element("p", { class: "faint" }, recorded(table.note)));
  }
}

function showAbout() {
  const columns = page.games.flatMap((game) =>
    page.runs.map((run) => page.runs.length > 1 ? `${game.id}, ${run.label}` : game.id));
  const names = [...new Set(page.games.flatMap((game) => game.table.map(([name]) => name)))];
  const rows = names.map((name) => [name, ...page.games.flatMap((game) => {
    const found = game.table.find(([other]) => other === name);
    return found ? found[1] : page.runs.map(() => "");
  })]);
  const place = document.getElementById("about");
  const numbers = folded("All numbers", scrolled("All numbers", rowsOf(["", ...columns], rows)));
  if (columns.length > 3) numbers.classList.add("whole");
  place.append(numbers);
  const asked = page.runs.map((run) => new Map(run.facts));
  const facts = [...new Set(page.runs.flatMap((run) => run.facts.map(([name]) => name)))];
  const heads = page.runs.length > 1 ? ["", ...page.runs.map((run) => run.label)] : null;
  const run = folded("What was run", scrolled("What was run", rowsOf(heads, facts.map((name) => [name, ...asked.map((of) => of.get(name) ?? "")]))));
  run.classList.toggle("whole", page.runs.length > 1 || columns.length > 3);
  place.append(run);
}

function folded(title, ...content) {
  const wide = window.matchMedia("(min-width: 60rem)").matches;
  return element("details", { class: "panel", open: wide }, element("summary", {}, recorded(title)), content);
}

function scrolled(label, content) {
  return element("div", { class: "scrolled", role: "region", "aria-label": label, tabindex: 0 }, content);
}

function rowsOf(columns, rows) {
  const head = columns && element("thead", {}, element("tr", {}, columns.map((name) => element("th", { scope: "col" }, recorded(name)))));
  const body = rows.map(([name, ...cells]) => element("tr", {},
    element("th", { scope: "row" }, recorded(name)), cells.map((cell) => element("td", {}, recorded(cell)))));
  return element("table", {}, head, element("tbody", {}, body));
}
