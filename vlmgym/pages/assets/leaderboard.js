// The leaderboard of a suite: a table of runs, and a profile of each.

fill(document.getElementById("head"), {}, [
  element("p", { class: "maker" }, page.madeBy), element("h1", {}, recorded(page.suite)),
  page.lead.map((words) => element("p", { class: "lead" }, recorded(words)))]);

fill(document.getElementById("main"), {}, [
  element("h2", {}, "Leaderboard"), board("Leaderboard", page.columns, page.rows, { id: "board" }).node,
  element("p", { class: "note faint" }, `Scores are 0 for the random policy and 1 for the oracle, with standard errors;
    the score of a skill is the mean over the games that mainly test it. The perception gap is the score with text
    descriptions minus the score with images, the sight gap the score with images minus the score with grey images, over
    the episodes that both runs have. Runs of all games rank first, then runs of fewer games, then control experiments,
    then runs with differences. Verified means that replaying the recorded responses gives these scores; it does not
    prove who produced the responses. Model, policy, tokens and cost are as recorded by whoever made the run.`),
  element("h2", {}, "Profiles"),
  element("div", { class: "profiles" }, page.profiles.map(({ label, prompt, rows, skills }) =>
    element("article", { class: "panel profile" }, element("h3", {}, recorded(label), " ", element("span", { class: "faint" }, recorded(prompt))),
      element("table", {}, element("tbody", {}, rows.map(([name, { text, bar }], i) =>
        element("tr", { class: i === skills ? "first" : null }, element("th", { scope: "row" }, cellContent(name)),
          element("td", { class: "number" }, recorded(text)), element("td", {}, scoreBar(bar)))))))))]);

document.getElementById("foot").append("Scores of skills, then of games, with 95% intervals.");
