// Tables: plain ones, and boards, which can be sorted by each column, filtered and searched.

function folded(title, table, open) {
  const wide = window.matchMedia("(min-width: 60rem)").matches;
  return element("details", { class: "panel", open: open && wide }, element("summary", {}, title), scrolled(title, table));
}

function scrolled(label, content) {
  return element("div", { class: "scrolled", role: "region", "aria-label": label, tabindex: 0 }, content);
}

function rowsOf(columns, rows) {
  const headCell = (name) => name === "" ? element("td") : element("th", { scope: "col" }, recorded(name));
  const cell = (content) => element("td", {}, content instanceof Node ? content : recorded(content));
  return element("table", {},
    columns && element("thead", {}, element("tr", {}, columns.map(headCell))),
    element("tbody", {}, rows.map(([name, ...cells]) =>
      element("tr", {}, element("th", { scope: "row" }, recorded(name)), cells.map(cell)))));
}

function choice(label, options, onChange, chosen) {
  const select = element("select", { "aria-label": label, onchange: () => onChange(select.value) },
    options.map(([value, words]) => element("option", { value, selected: value === chosen }, recorded(words))));
  return element("label", {}, element("span", {}, label), select);
}

// A score from 0 to 1 with its 95% interval; values beyond are cut off.
function scoreBar([low, mean, high]) {
  const place = (value) => 180 * Math.min(Math.max(value, 0), 1);
  const label = low < high ? `95% interval ${low.toFixed(2)} to ${high.toFixed(2)}` : "no interval";
  return drawing("svg", { class: "score-bar", viewBox: "0 0 180 12", preserveAspectRatio: "none", role: "img", "aria-label": label },
    drawing("rect", { class: "from-0-to-1", width: 180, height: 12, rx: 3 }),
    drawing("rect", { class: "share", width: place(mean), height: 12, rx: 3 }),
    low < high ? drawing("path", { class: "interval", d: `M${place(low)} 6H${place(high)}M${place(low)} 3V9M${place(high)} 3V9` }) : null);
}

// The content of a cell, {text, key, bar, href, progress}.
function cellContent({ text, bar, href, progress }) {
  return [href ? element("a", { href }, recorded(text)) : recorded(text), bar ? scoreBar(bar) : null,
    progress === undefined ? null : element("progress", { value: progress, max: 1, "aria-label": "progress" })];
}

const FIRST_ROWS = 300; // more only when asked for
const ORDER = new Intl.Collator("en", { numeric: true });

// `columns` are {name, filter, optional}, and rows {cells}, with a cell for each column; an optional column is hidden
// while it is empty. `lead(row)` makes a cell before them.
function board(label, columns, rows, { id, search, lead, order = null } = {}) {
  const chosen = columns.map(() => "");
  let words = "";
  let limit = FIRST_ROWS;
  const filters = element("div", { class: "filters" });
  const count = element("p", { class: "faint", role: "status" });
  const body = element("tbody");
  const heads = columns.map(({ name }, column) =>
    element("th", { scope: "col" }, element("button", { type: "button", onclick: () => sort(column) }, name)));
  const more = element("button", { type: "button", onclick: () => { limit = Infinity; render(); } }, "Show all rows");
  const node = element("div", { class: "board" }, search ? filters : null, search ? count : null,
    scrolled(label, element("table", { id }, element("thead", {}, element("tr", {}, lead ? element("td") : null, heads)), body)), more);
  if (search) {
    const box = element("input", { type: "search", "aria-label": "Search", oninput: () => { words = box.value.toLowerCase(); render(); } });
    filters.append(element("label", {}, element("span", {}, "Search"), box), element("span", { class: "choices" }));
  }

  function choices() {
    if (!search) return;
    filters.lastChild.replaceChildren(...columns.flatMap(({ name, filter }, column) => {
      const values = filter ? [...new Set(rows.map((row) => row.cells[column].group ?? row.cells[column].text))].sort(ORDER.compare) : [];
      if (values.length < 2 && !chosen[column]) return [];
      return choice(name, [["", "all"], ...values.filter(Boolean).map((value) => [value, value])],
        (value) => { chosen[column] = value; render(); }, chosen[column]);
    }));
  }

  function sort(column) {
    const numeric = rows.every(({ cells }) => cells[column].key === null || typeof cells[column].key === "number");
    order = { column, down: order?.column === column ? !order.down : numeric };
    render();
  }

  function matches({ cells }) {
    return cells.every(({ text, group }, column) => !chosen[column] || (group ?? text) === chosen[column])
      && (!words || cells.some(({ text }) => text.toLowerCase().includes(words)));
  }

  function render() {
    heads.forEach((head, column) => head.classList.toggle("number", rows.some(({ cells }) => typeof cells[column].key === "number")));
    const hidden = columns.map(({ optional }, column) => Boolean(optional) && rows.every(({ cells }) => cells[column].key === null));
    heads.forEach((head, column) => { head.hidden = hidden[column]; });
    const shown = rows.filter(matches);
    if (order) {
      const key = (row) => row.cells[order.column].key;
      const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : ORDER.compare(a, b);
      shown.sort((one, other) => {
        const [a, b] = [key(one), key(other)];
        if (a === null || b === null) return (a === null) - (b === null);
        return order.down ? compare(b, a) : compare(a, b);
      });
    }
    heads.forEach((head, column) => {
      if (order?.column === column) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    count.textContent = shown.length === rows.length ? plural(rows.length, "row") : `${number(shown.length)} of ${plural(rows.length, "row")}`;
    more.hidden = shown.length <= limit;
    body.replaceChildren(...shown.slice(0, limit).map((row) => element("tr", {}, lead ? element("td", {}, lead(row)) : null,
      row.cells.map((cell, column) => element(column ? "td" : "th", {
        scope: column ? null : "row", hidden: hidden[column], class: typeof cell.key === "number" ? "number" : "text", title: cell.text.length > 30 ? cell.text.slice(0, 500) : null,
      }, cellContent(cell))))));
  }

  function update(fresh) {
    rows = fresh;
    const box = document.activeElement;
    if (!(box instanceof HTMLSelectElement && filters.contains(box))) choices(); // an open list would close
    render();
  }

  update(rows);
  return { node, update };
}
