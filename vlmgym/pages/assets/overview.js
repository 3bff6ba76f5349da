// The head of the page and the overview: scores of all games, tables of a comparison, run configuration.

const GAMES = page.games.map((game) => game.id);

function showRuns() {
  const named = ({ label, policy }) => label === policy ? label : `${label} (${policy})`;
  const lead = page.runs.length > 1
    ? `${GAMES.join(", ")}, played by ${page.runs.map(named).join(" and ")}`
    : page.runs[0].lead.join("; ");
  const head = showHead(page.title, [lead]);
  for (const run of page.runs) {
    const missing = Object.entries(run.missing).map(([status, count]) => `${number(count)} ${status}`);
    const which = page.runs.length > 1 ? `${run.label}: ` : "";
    const notes = run.progress ? [run.progress] : [];
    if (run.control) notes.push(run.control);
    if (run.stop_reason) notes.push(`The run was stopped: ${run.stop_reason}.`);
    if (missing.length) notes.push(`Episodes without a result, not included in any score: ${missing.join(", ")}. ${run.bias}`);
    if (run.diagnosis) head.append(element("p", {}, element("a", { href: run.diagnosis }, recorded(`${which}why turns went wrong`))));
    if (notes.length) head.append(element("p", { class: "banner" }, recorded(which + notes.join(" "))));
  }
}

function showOverview() {
  document.getElementById("panel-overview").replaceChildren(
    element("h2", {}, "Scores"), ...scoreTable(), ...skillChart(), ...page.tables.flatMap(pageTable), ...details());
}

const SCORE_COLUMNS = ["mean score", "95% interval", ...(page.runs.length > 1 ? ["difference"] : []), "episodes", "turns", "format", "perception"];

// A row for each game and run.
function scoreTable() {
  const several = page.runs.length > 1;
  const rows = page.games.flatMap((game) => page.runs.map((run, i) => {
    const label = several ? element("td", { class: `label run-${i}` }, recorded(run.label)) : null;
    const name = i === 0 ? element("th", { scope: "row", rowspan: page.runs.length }, gameLink(game)) : null;
    return element("tr", { class: i === 0 ? "first" : "" }, name, label, scoreCells(game.summaries[i], game.differences?.[i]));
  }));
  const heads = ["game", ...(several ? ["run"] : []), ...SCORE_COLUMNS];
  const table = element("table", { class: "scores" },
    element("thead", {}, element("tr", {}, heads.map((head) => element("th", { scope: "col" }, head)))),
    element("tbody", {}, rows));
  const note = "Each interval is a 95% confidence interval of the mean score; a dash marks a single episode, equal scores, or several stages."
    + (several ? ` A difference is ${page.runs[0].label} minus the other run, over the seeds that both have.` : "");
  return [scrolled("Scores", table), element("p", { class: "faint note" }, note)];
}

function gameLink(game) {
  const at = page.games.indexOf(game);
  const first = page.episodes.find((row) => row.game === at);
  return first
    ? element("a", { href: episodeAddress(first), title: "Open the first episode" }, recorded(game.id))
    : recorded(game.id);
}

function scoreCells(summary, difference) {
  if (!summary) return element("td", { colspan: SCORE_COLUMNS.length, class: "faint" }, "not played");
  const { score_mean: mean, score_ci: interval, turns } = summary;
  const missing = Object.values(summary.unfinished).reduce((total, count) => total + count, 0);
  const stages = Object.keys(summary.stages).length > 1;
  return [
    element("td", { class: "score" }, mean === null ? "none" : number(mean),
      stages ? element("span", { class: "faint small" }, "all stages together") : null),
    element("td", {}, interval ? `${number(interval[0])} to ${number(interval[1])}` : "\u2013"),
    page.runs.length > 1 ? element("td", {}, difference || "\u2013") : null,
    element("td", {}, number(summary.episodes), missing ? element("span", { class: "faint small" }, `${number(missing)} without a result`) : null),
    element("td", {}, turns ? outcomeBar(summary) : "\u2013"),
    element("td", {}, summary.format_compliance === null ? "n/a" : percent(summary.format_compliance)),
    element("td", {}, summary.perception_accuracy === null ? "n/a" : percent(summary.perception_accuracy)),
  ];
}

function outcomeBar(summary) {
  const { illegal_rate: illegal, unparsable_rate: unparsable } = summary;
  const shares = { played: 1 - illegal - unparsable, illegal, unparsable };
  const bar = drawing("svg", { class: "bar", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" });
  let x = 0;
  for (const outcome of OUTCOMES) {
    bar.append(drawing("rect", { class: outcome, x, width: 100 * shares[outcome], height: 4 }));
    x += 100 * shares[outcome];
  }
  const words = OUTCOMES.map((outcome) => element("span", { class: `key ${outcome}` }, `${outcome} ${percent(shares[outcome])}`));
  return element("div", { class: "outcomes" }, bar, element("p", { class: "keys" }, words));
}

// A bar per skill from 0 (random policy) to 1 (oracle), with its interval; scores beyond are cut off.
function skillChart() {
  if (!page.skills) return [];
  const rows = page.skills.scores.map(([skill, mean, error, games]) => {
    const bar = scoreBar([mean - 1.96 * error, mean, mean + 1.96 * error]); // without an error, a point
    return [skill, bar, error === null ? mean.toFixed(3) : `${mean.toFixed(3)} \u00b1 ${error.toFixed(3)}`, games.join(", ")];
  });
  return [
    element("h2", {}, "Skills"), scrolled("Skills", rowsOf(["skill", "", "normalised score", "games"], rows)),
    element("p", { class: "faint note" }, recorded(page.skills.note)),
  ];
}

function pageTable(table) {
  if (page.runs.length > 2 && table.rows.length) return [folded(table.title, rowsOf(table.columns, table.rows), false)];
  return [
    element("h2", {}, recorded(table.title)), table.rows.length ? scrolled(table.title, rowsOf(table.columns, table.rows)) : null,
    table.note ? element("p", { class: "faint note" }, recorded(table.note)) : null,
  ].filter((node) => node !== null);
}

// Run configuration and all metrics.
function details() {
  const configs = page.runs.map((run) => new Map(run.facts));
  const facts = [...new Set(page.runs.flatMap((run) => run.facts.map(([name]) => name)))];
  const heads = page.runs.length > 1 ? ["", ...page.runs.map((run) => run.label)] : null;
  const run = rowsOf(heads, facts.map((name) => [name, ...configs.map((config) => config.get(name) ?? "")]));
  const columns = page.games.flatMap((game) =>
    page.runs.map((run) => page.runs.length > 1 ? `${game.id}, ${run.label}` : game.id));
  const names = [...new Set(page.games.flatMap((game) => game.table.map(([name]) => name)))];
  const numbers = names.map((name) => [name, ...page.games.flatMap((game) => {
    const found = game.table.find(([other]) => other === name);
    return found ? found[1] : page.runs.map(() => "");
  })]);
  return [folded("Run configuration", run, true), folded("All metrics", rowsOf(["", ...columns], numbers), false)];
}
