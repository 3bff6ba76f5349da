// The list of episodes: filtered and sorted; only visible rows are in the document.

const ROW = 46; // pixels
const SPARE = 6; // rows above and below the visible ones

const ORDERS = {
  seed: { words: "seed", key: (row) => row.seed, up: true },
  best: { words: "best score first", key: (row) => scoreOf(row) },
  worst: { words: "worst score first", key: (row) => scoreOf(row), up: true },
  longest: { words: "most turns first", key: (row) => most(row, (cell) => cell.turns) },
  wrong: { words: "most invalid turns first", key: (row) => most(row, (cell) => cell.illegal + cell.unparsable) },
  blind: { words: "worst perception first", key: (row) => least(row, (cell) => cell.perception), up: true },
};
if (page.difference) {
  ORDERS.largest = { words: `${page.difference}, largest first`, key: (row) => row.difference };
  ORDERS.smallest = { words: `${page.difference}, smallest first`, key: (row) => row.difference, up: true };
}

const CONTENTS = {
  all: { words: "all turns", has: () => true },
  illegal: { words: "with illegal turns", has: (cell) => cell.illegal > 0 },
  unparsable: { words: "with unparsable turns", has: (cell) => cell.unparsable > 0 },
  clean: { words: "without invalid turns", has: (cell) => !cell.illegal && !cell.unparsable },
  blind: { words: "with wrong perception", has: (cell) => cell.perception !== null && cell.perception < 1 },
};

const cells = (row) => row.runs.filter((cell) => cell !== null);
const scoreOf = (row) => most(row, (cell) => cell.score);
function most(row, value) {
  const known = cells(row).map(value).filter((one) => one !== null);
  return known.length ? Math.max(...known) : null;
}
function least(row, value) {
  const known = cells(row).map(value).filter((one) => one !== null);
  return known.length ? Math.min(...known) : null;
}
function episodeList(onChoose) {
  const chosen = { game: "all", status: "all", content: "all", order: "seed" };
  const statuses = [...new Set(page.episodes.flatMap(cells).map((cell) => cell.status))];
  const chooser = (name, label, options) => choice(label, options, (value) => { chosen[name] = value; refresh(); });
  const worded = (table) => Object.entries(table).map(([value, { words }]) => [value, words]);
  const count = element("p", { class: "faint", role: "status" });
  const rows = element("div", { class: "rows" });
  const box = element("div", { class: "list", role: "listbox", "aria-label": "Episodes", tabindex: 0, onscroll: () => render() }, rows);
  const node = element("div", { class: "chooser panel" },
    element("div", { class: "filters" },
      GAMES.length < 2 ? null : chooser("game", "Game", [["all", "all games"], ...GAMES.map((game, i) => [String(i), game])]),
      statuses.length < 2 ? null : chooser("status", "Ended", [["all", "any way"], ["result", "with a result"], ...statuses.map((status) => [`= ${status}`, status])]),
      chooser("content", "Turns", worded(CONTENTS)),
      chooser("order", "Order", worded(ORDERS))),
    count, page.runs.length > 1 ? listHead() : null, box);

  let shown = [];
  let current = null;

  function matches(row) {
    if (chosen.game !== "all" && row.game !== Number(chosen.game)) return false;
    return cells(row).some((cell) =>
      (chosen.status === "all" || (chosen.status === "result" ? cell.score !== null : `= ${cell.status}` === chosen.status))
      && CONTENTS[chosen.content].has(cell));
  }

  // With `keep`, the list stays where it is.
  function refresh(keep = false) {
    const { key, up } = ORDERS[chosen.order];
    const keyed = page.episodes.filter(matches).map((row) => [key(row), row]);
    keyed.sort(([a, x], [b, y]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return (up ? a - b : b - a) || x.game - y.game || x.seed - y.seed;
    });
    shown = keyed.map(([, row]) => row);
    count.textContent = shown.length === page.episodes.length
      ? plural(shown.length, "episode") : `${number(shown.length)} of ${plural(page.episodes.length, "episode")}`;
    rows.style.height = `${shown.length * ROW}px`;
    if (!keep) {
      box.scrollTop = 0;
      if (shown.length && !shown.includes(current)) onChoose(shown[0]);
      else reveal();
    }
    render();
  }

  function render() {
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - SPARE);
    const last = Math.min(shown.length, Math.ceil((box.scrollTop + box.clientHeight) / ROW) + SPARE);
    rows.replaceChildren(...shown.slice(first, last).map((row, i) => {
      const item = rowElement(row, row === current, shown.length, first + i);
      item.style.top = `${(first + i) * ROW}px`;
      item.addEventListener("click", () => { onChoose(row); box.focus(); });
      return item;
    }));
    const at = current ? rowId(current) : null;
    if (at && document.getElementById(at)) box.setAttribute("aria-activedescendant", at);
    else box.removeAttribute("aria-activedescendant");
  }

  function reveal() {
    const at = shown.indexOf(current) * ROW;
    if (at < 0) return;
    if (at < box.scrollTop) box.scrollTop = at;
    else if (at + ROW > box.scrollTop + box.clientHeight) box.scrollTop = at + ROW - box.clientHeight;
  }

  return {
    node,
    refresh,
    select(row) {
      current = row;
      reveal();
      render();
    },
    update(row) {
      current = row;
      refresh(true);
    },
    neighbour(step) {
      const at = shown.indexOf(current);
      return shown[Math.min(shown.length - 1, Math.max(0, at + step))] ?? null;
    },
    resized() {
      reveal();
      render();
    },
    box,
  };
}

function listHead() {
  return element("p", { class: "list-head faint" }, "scores: ",
    page.runs.map((run, i) => [i ? ", " : "", element("span", { class: `label run-${i}` }, recorded(run.label))]),
    page.difference ? recorded(`, and ${page.difference}`) : null);
}

const rowId = (row) => `row-${row.game}-${row.seed}`;

function rowElement(row, selected, size, place) {
  const scores = row.runs.map((cell, i) =>
    element("span", { class: `score run-${i}` }, cell === null ? "\u2013" : cell.score === null ? cell.status : number(cell.score)));
  const sum = (name) => cells(row).reduce((total, cell) => total + cell[name], 0);
  const marks = ["illegal", "unparsable"].filter((name) => sum(name)).map((name) =>
    element("span", { class: `mark ${name}`, title: plural(sum(name), `${name} turn`) }, `${OUTCOME_SIGNS[name]} ${number(sum(name))}`));
  const turns = [...new Set(cells(row).map((cell) => number(cell.turns)))].join(" / ");
  const stages = [...new Set(cells(row).map((cell) => cell.stage).filter(Boolean))].join(" / ");
  return element("div",
    { class: "row", id: rowId(row), role: "option", "aria-selected": String(selected), "aria-setsize": size, "aria-posinset": place + 1 },
    element("span", { class: "name" },
      element("b", {}, `seed ${row.seed}`),
      element("span", { class: "faint" }, GAMES.length > 1 ? recorded(`${GAMES[row.game]}, `) : "", stages ? recorded(`${stages}, `) : "", turns === "1" ? "1 turn" : `${turns} turns`)),
    element("span", { class: "marks" }, marks),
    element("span", { class: "scores" }, scores,
      page.difference ? element("span", { class: "difference" }, row.difference === null ? "" : signed(row.difference)) : null));
}
