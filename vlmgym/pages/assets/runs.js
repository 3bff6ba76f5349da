// The list of all runs and trainings in a folder, which follows the folder.

showHead("Runs", [page.folder]);

const entries = new Map(Object.entries(page.entries));
const rowsOfKind = (kind) => [...entries.values()].filter((entry) => entry.kind === kind).flatMap((entry) => entry.rows);

const selected = new Set();
const compare = element("button", { type: "button", class: "primary", onclick: () => {
  location.href = `run?${new URLSearchParams([...selected].map((run) => ["run", run]))}`;
} });
const selection = element("p", { class: "selection" }, compare,
  element("button", { type: "button", onclick: () => { selected.clear(); choose(); } }, "Clear selection"));

function box({ run }) {
  if (!run) return null;
  const change = (event) => {
    if (event.target.checked) selected.add(run);
    else selected.delete(run);
    choose();
  };
  return element("input", { type: "checkbox", "aria-label": `Select ${run}`, "data-run": run, checked: selected.has(run), onchange: change });
}

function choose() {
  for (const other of document.querySelectorAll("[data-run]")) other.checked = selected.has(other.dataset.run);
  compare.textContent = selected.size < 2 ? "Select 2 or more runs to compare" : `Compare ${selected.size} runs`;
  compare.disabled = selected.size < 2 || selected.size > page.mostCompared;
  if (selected.size > page.mostCompared) compare.textContent = `At most ${page.mostCompared} runs can be compared`;
  selection.lastChild.hidden = selected.size === 0;
}

const started = page.columns.findIndex(({ name }) => name === "started");
const newest = { column: started, down: true };
const runs = board("Evaluations", page.columns, rowsOfKind("evaluation"), { id: "runs", search: true, lead: box, order: newest });
const trainings = board("Trainings", page.trainingColumns, rowsOfKind("training"), {
  id: "trainings", search: false, order: { column: page.trainingColumns.length - 1, down: true } });
const empty = element("section", { class: "panel empty" },
  element("p", {}, "There are no runs in this folder yet. Start one in another terminal, and it appears here by itself:"),
  element("pre", { tabindex: 0 }, recorded(page.command)),
  element("p", {}, "Or ", element("a", { href: "play" }, "play a game yourself"), " beside the prompt that a model gets."));
const parts = {
  training: element("section", {}, element("h2", {}, "Trainings"), trainings.node),
  evaluation: element("section", {}, element("h2", {}, "Evaluations"), runs.node, selection,
    element("p", { class: "note faint" }, `A level is perception/reasoning. Scores are means in the unit of the game; those
      of a suite are 0 for the random policy and 1 for the oracle. The perception gap is the score with text descriptions
      minus the score with images, the sight gap the score with images minus the score with grey images, of the same
      policy over the seeds that both runs have, with standard errors.`)),
};

function show() {
  const [evaluations, training] = ["evaluation", "training"].map(rowsOfKind);
  runs.update(evaluations);
  trainings.update(training);
  parts.evaluation.hidden = !evaluations.length;
  parts.training.hidden = !training.length;
  empty.hidden = evaluations.length + training.length > 0;
  choose();
}

document.getElementById("main").append(empty, parts.training, parts.evaluation);
show();
listen(({ changed }) => {
  for (const [name, entry] of Object.entries(changed)) entries.set(name, entry);
  show();
});
