// The viewer: the list of episodes, the turn slider, and a pane for each run. Its address is #game/seed/turn.

function makeViewer() {
  const place = document.getElementById("panel-episodes");
  const panes = page.runs.map((run, i) => episodePane(i));
  const title = element("h2", { class: "what" });
  const slider = element("input", { type: "range", min: 1, value: 1, "aria-label": "Turn", oninput: () => go(Number(slider.value) - 1) });
  const track = drawing("svg", { class: "track", preserveAspectRatio: "none", "aria-hidden": "true" });
  const position = element("output", { class: "position" });
  const button = (words, label, action) => element("button", { type: "button", "aria-label": label, title: label, onclick: action }, words);
  const previous = button("\u2190", "Previous turn (left)", () => step(-1));
  const next = button("\u2192", "Next turn (right)", () => step(1));
  const jumps = Object.fromEntries(["illegal", "unparsable"].map((name) => [name,
    element("button", { type: "button", class: `jump ${name}`, onclick: () => jump(1, [name]) }, `next ${name}`)]));
  const list = episodeList((row) => open(row, 0));
  const bar = element("div", { class: "turns panel" }, previous,
    element("div", { class: "slider" }, track, slider), next, position, Object.values(jumps));
  place.append(
    element("div", { class: "viewer-head" }, element("h2", {}, "Episodes"),
      element("p", { class: "faint hint" }, "\u2190 \u2192 turns; j k episodes; n b invalid turns")),
    element("div", { class: `viewer ${page.runs.length > 1 ? "several" : "single-run"}` }, list.node,
      element("div", { class: "stage" }, title, bar, element("div", { class: "panes" }, panes.map((pane) => pane.node)))));

  let row = null;
  let index = 0;
  let episodes = []; // of the row, one for each run, null where there is none

  async function open(chosen, turn) {
    row = chosen;
    index = turn;
    const loading = episodes = row.runs.map(() => null);
    list.select(row);
    const gain = row.difference === null ? "" : `; ${page.difference}: ${signed(row.difference)}`;
    title.replaceChildren(...recorded(`${GAMES[row.game]}, seed ${row.seed}${gain}`));
    showAddress();
    await Promise.all(row.runs.map(async (cell, run) => {
      if (cell === null) return panes[run].say("This run has no record of this episode.");
      const episode = await loadEpisode(run, row).catch((error) => error.message);
      if (episodes !== loading) return null;
      if (typeof episode === "string") return panes[run].say(episode);
      episodes[run] = episode;
      return null;
    }));
    if (episodes === loading) go(index);
  }

  // After the data of the page has changed: the list, and the episode if it is shown.
  function update() {
    if (row) {
      row = page.episodes.find((other) => other.game === row.game && other.seed === row.seed);
      list.update(row);
    }
  }

  const length = () => Math.max(1, ...episodes.map((episode) => episode?.turns.length ?? 0));

  function go(turn) {
    index = Math.min(length() - 1, Math.max(0, turn));
    slider.max = length();
    slider.value = index + 1;
    slider.setAttribute("aria-valuetext", `turn ${index + 1} of ${length()}`);
    position.textContent = `turn ${index + 1} of ${length()}`;
    previous.disabled = index === 0;
    next.disabled = index === length() - 1;
    episodes.forEach((episode, run) => { if (episode) panes[run].show(episode, row, index); });
    for (const [name, node] of Object.entries(jumps)) node.hidden = !places([name]).length;
    showTrack();
    showAddress();
  }

  const step = (by) => go(index + by);

  function places(outcomes) {
    const found = new Set();
    for (const episode of episodes) {
      episode?.turns.forEach((turn, i) => { if (outcomes.includes(turn.outcome)) found.add(i); });
    }
    return [...found].sort((a, b) => a - b);
  }

  // Go to the next turn with one of these outcomes, wrapping around.
  function jump(direction, outcomes) {
    const found = places(outcomes);
    if (!found.length) return;
    if (direction > 0) go(found.find((i) => i > index) ?? found[0]);
    else go(found.findLast((i) => i < index) ?? found.at(-1));
  }

  function showTrack() {
    const lanes = episodes.filter((episode) => episode !== null);
    track.setAttribute("viewBox", `0 0 ${length()} ${Math.max(1, lanes.length)}`);
    track.replaceChildren(...lanes.flatMap((episode, lane) => runsOf(episode.turns).map(([from, to, outcome]) =>
      drawing("rect", { class: outcome, x: from, y: lane + 0.08, width: to - from, height: 0.84 }))));
  }

  function showAddress() {
    const address = episodeAddress(row, index + 1);
    if (location.hash !== address) history.replaceState(null, "", address);
  }

  // The episode and turn that an address refers to, or null.
  function find(address) {
    const [game, seed, turn] = address.split("/");
    const found = page.episodes.find((one) => encodeURIComponent(GAMES[one.game]) === game && String(one.seed) === seed);
    return found ? { row: found, turn: (Number(turn) || 1) - 1 } : null;
  }

  // Show an episode; null shows the last one shown, or the first.
  function show(found) {
    if (!page.episodes.length) return;
    if (!found && !row) list.refresh();
    else if (!found) showAddress();
    else if (found.row === row) go(found.turn);
    else {
      const first = row === null;
      open(found.row, found.turn);
      if (first) list.refresh();
    }
    list.resized();
  }

  if (page.episodes.length) {
    window.addEventListener("resize", list.resized);
    listenToKeys({ viewer: place, bar, list: list.box, slider }, {
      turn: step,
      episode: (by) => { const other = list.neighbour(by); if (other && other !== row) open(other, 0); },
      wrong: (direction) => jump(direction, ["illegal", "unparsable"]),
    });
  } else {
    place.replaceChildren(element("h2", {}, "Episodes"), element("p", { class: "faint" }, "No episode was recorded."));
  }
  return { find, show, update, focus: () => list.box.focus({ preventScroll: true }) };
}

function episodeAddress(row, turn = 1) {
  return `#${encodeURIComponent(GAMES[row.game])}/${row.seed}/${turn}`;
}

// Runs of consecutive turns with the same outcome: [from, to, outcome].
function runsOf(turns) {
  const found = [];
  turns.forEach((turn, i) => {
    const latest = found.at(-1);
    if (latest && latest[2] === turn.outcome) latest[1] = i + 1;
    else found.push([i, i + 1, turn.outcome]);
  });
  return found;
}

// Keys: left and right for turns, j and k (or up and down in the list) for episodes, n and b for invalid turns.
// A key acts only while the element it changes is visible, and never while another part of the page has the focus.

function listenToKeys({ viewer, bar, list, slider }, actions) {
  document.addEventListener("keydown", (event) => {
    const on = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey || on instanceof HTMLSelectElement) return;
    if (on !== document.body && !viewer.contains(on)) return;
    const own = on === slider; // moves by itself
    const listed = on === list;
    const scrolls = on.getAttribute("role") === "region";
    const across = own || (scrolls && on.scrollWidth > on.clientWidth);
    const episodes = onScreen(bar) || (listed && onScreen(list));
    const action = {
      ArrowLeft: !across && onScreen(bar) && (() => actions.turn(-1)),
      ArrowRight: !across && onScreen(bar) && (() => actions.turn(1)),
      ArrowUp: listed && episodes && (() => actions.episode(-1)),
      ArrowDown: listed && episodes && (() => actions.episode(1)),
      Home: listed && episodes && (() => actions.episode(-Infinity)),
      End: listed && episodes && (() => actions.episode(Infinity)),
      k: episodes && (() => actions.episode(-1)),
      j: episodes && (() => actions.episode(1)),
      n: onScreen(bar) && (() => actions.wrong(1)),
      b: onScreen(bar) && (() => actions.wrong(-1)),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function onScreen(node) {
  const { top, bottom, height } = node.getBoundingClientRect();
  return height > 0 && bottom > 0 && top < window.innerHeight;
}
