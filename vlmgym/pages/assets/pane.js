// Assemble images from tiles on canvases, at their original size.

function decoded(images, tile) {
  images.decoded ??= [];
  images.decoded[tile] ??= new Promise((resolve, reject) => {
    const image = new Image();
    image.addEventListener("load", () => resolve(image));
    image.addEventListener("error", () => reject(new Error("an image cannot be decoded")));
    image.src = images.tiles[tile];
  });
  return images.decoded[tile];
}

// Show the images of a state in a holder, which keeps its old content until they are decoded.
async function showImages(holder, images, state, words) {
  const ticket = {};
  holder.ticket = ticket;
  const frame = images.frames[images.shown[state]];
  const drawn = await Promise.all(frame.map((tiles) => Promise.all(tiles.map((tile) => decoded(images, tile)))));
  if (holder.ticket !== ticket) return;
  const old = [...holder.querySelectorAll("canvas")];
  const canvases = drawn.map((tiles, i) => {
    const { columns, rows } = images.cuts[i];
    const canvas = old[i] ?? element("canvas");
    canvas.width = columns.at(-1);
    canvas.height = rows.at(-1);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", words);
    const context = canvas.getContext("2d");
    const across = columns.length - 1;
    tiles.forEach((tile, j) => context.drawImage(tile, columns[j % across], rows[Math.floor(j / across)]));
    return canvas;
  });
  holder.replaceChildren(...canvases);
}

// A pane shows one turn of one episode of one run. It is built once and only its contents change, so that collapsed sections stay collapsed.

function episodePane(run) {
  const whose = page.runs.length > 1 ? `${page.runs[run].label}: ` : ""; // names of landmarks must be unique
  const label = page.runs.length > 1 ? element("span", { class: `label run-${run}` }, recorded(page.runs[run].label)) : null;
  const summary = element("span", { class: "faint" }, "loading");
  const before = figure("before");
  const after = figure("after");
  const outcome = element("p", { class: "outcome" });
  const feedback = element("p", { class: "feedback" });
  const reward = element("dl", { class: "numbers" });
  const scrollingText = (title, text) =>
    element("pre", { tabindex: 0, role: "region", "aria-label": whose + title }, recorded(text));
  const response = block("Response", scrollingText("Response", ""));
  response.text.classList.add("response");
  const perception = unfolding("Perception vs. ground truth", true);
  const reasoning = unfolding("Reasoning returned separately", false);
  const truth = unfolding("Text description of the image", false);
  const system = unfolding("System prompt", false);
  const prompt = unfolding("Prompt", false);
  const facts = element("dl", { class: "numbers" });
  const body = element("div", { class: "pane-body" },
    element("div", { class: "views" }, before.node, after.node),
    element("div", { class: "said" }, outcome, feedback, reward, response.node, perception.node, reasoning.node, truth.node, system.node, prompt.node, facts));
  const message = element("p", { class: "faint message", role: "status" });
  const node = element("section", { class: "pane", "aria-label": page.runs.length > 1 ? page.runs[run].label : "Episode" },
    element("h3", {}, label, summary), message, body);

  function showTurn(episode, cell, index) {
    const turn = episode.turns[index];
    const last = index === episode.turns.length - 1;
    const words = (number) => number === null || number === undefined ? null : episode.texts[number];
    const truthNow = turn ? turn.truth : episode.final;
    const truthNext = last || !turn ? episode.final : episode.turns[index + 1].truth;
    before.show(episode, index, turn ? `${page.runs[run].hasImages ? "What the model saw" : "Shown to the model as text"} in turn ${index + 1}` : "The state", words(truthNow));
    after.node.hidden = !turn;
    if (turn) after.show(episode, index + 1, last ? `After the last turn: ${cell.end}` : "After the turn", words(truthNext));
    for (const part of [outcome, reward, response.node, facts]) part.hidden = !turn;
    feedback.hidden = !turn?.feedback;
    truth.show(words(truthNow), (text) => scrollingText("Text description", text));
    reasoning.show(turn?.reasoning ?? null, (text) => scrollingText("Reasoning", text));
    system.show(turn ? words(turn.system) : null, (text) => scrollingText("System prompt", text));
    prompt.show(turn ? words(turn.prompt) : null, (text) => scrollingText("Prompt", text));
    perception.show(turn?.grids ?? null, (grids) => gridTable(grids, whose));
    if (!turn) return;
    outcome.replaceChildren(
      element("span", { class: `badge ${turn.outcome}` }, OUTCOME_SIGNS[turn.outcome], " ", turn.outcome),
      turn.action === null ? element("span", { class: "faint" }, "no action") : element("code", {}, recorded(turn.action)));
    feedback.replaceChildren(...recorded(turn.feedback));
    const parts = turn.reward;
    reward.replaceChildren(...pairs([
      ["game reward", number(parts.game, 4)], ["format", number(parts.format, 4)],
      ["perception", parts.perception === null ? "" : number(parts.perception, 4)],
      ...(parts.prediction === null ? [] : [["prediction", number(parts.prediction, 4)]]), ["total", number(parts.total, 4)]]));
    response.text.replaceChildren(...turn.response.map(([section, text]) =>
      element("span", section ? { class: `section ${section}`, "data-section": section } : { class: "outside" }, recorded(text))));
    const shortened = turn.response.some(([, text]) => typeof text !== "string");
    response.note.textContent = !turn.response.length ? "is empty" : shortened ? "is truncated here" : "";
    facts.replaceChildren(...pairs([
      ["latency", turn.latency === null ? "" : `${number(turn.latency, 3)} s`],
      ["tokens", turn.promptTokens === null ? "" : `${number(turn.promptTokens)} in, ${number(turn.completionTokens)} out`],
      ["cost", turn.cost === null ? "" : number(turn.cost, 6)],
      ["finish reason", turn.finish], ["requests", turn.requests === null ? "" : number(turn.requests)], ...turn.info]));
  }

  return {
    node,
    show(episode, row, index) {
      const cell = row.runs[run];
      message.textContent = "";
      body.hidden = false;
      const status = cell.score === null ? `no score, ${cell.status}` : `score ${number(cell.score)}`;
      summary.replaceChildren(...recorded(`${status}; ${cell.end}`), ...episode.facts.flatMap(([name, value]) => recorded(`; ${name} ${value}`)),
        ...(cell.video ? ["; ", videoLink(row, cell, run)] : []));
      showTurn(episode, cell, Math.min(index, Math.max(0, episode.turns.length - 1)));
      if (index >= episode.turns.length && episode.turns.length) {
        message.textContent = `This episode ended after ${plural(episode.turns.length, "turn")}.`;
      }
    },
    say(words) {
      body.hidden = true;
      summary.textContent = "not shown";
      message.textContent = words;
    },
  };
}

function figure(name) {
  const holder = element("div", { class: "images" });
  const caption = element("figcaption");
  return {
    node: element("figure", { class: name }, holder, caption),
    show(episode, state, words, truth) {
      caption.replaceChildren(...recorded(words));
      const described = `${words}${truth ? ": " + truth : ""}`;
      const failed = (why) => { holder.ticket = null; holder.replaceChildren(element("p", { class: "no-image" }, why)); };
      if (episode.images) showImages(holder, episode.images, state, described).catch((error) => failed(error.message));
      else failed(episode.installed
        ? `This page has images of the first ${plural(page.images, "episode")} of each game. vlmgym report RUN --images all renders the others.`
        : "There is no image, because this version of the game was not installed when this page was generated.");
    },
  };
}

function block(title, text) {
  const note = element("span", { class: "faint" });
  return { node: element("div", {}, element("h4", {}, title, " ", note), text), text, note };
}

function unfolding(title, open) {
  const content = element("div");
  const node = element("details", { open }, element("summary", {}, title), content);
  return {
    node,
    show(value, make) {
      node.hidden = value === null;
      if (value !== null) content.replaceChildren(make(value));
    },
  };
}

function pairs(entries) {
  return entries.filter(([, value]) => value !== "" && value !== null).map(([name, value]) =>
    element("div", {}, element("dt", {}, recorded(name)), element("dd", {}, recorded(value))));
}

// The predicted cells, with the true value below each wrong one.
function gridTable({ seen, truth }, whose) {
  let right = 0, all = 0;
  const height = Math.max(seen.length, truth.length);
  const rows = Array.from({ length: height }, (_, i) => {
    const width = Math.max(seen[i]?.length ?? 0, truth[i]?.length ?? 0);
    return element("tr", {}, Array.from({ length: width }, (_, j) => {
      const written = seen[i]?.[j], real = truth[i]?.[j];
      all += 1;
      if (written === real) {
        right += 1;
        return element("td", {}, recorded(written));
      }
      return element("td", { class: "wrong" },
        element("span", { class: "written" }, written === undefined ? "missing" : recorded(written || "empty")),
        element("span", { class: "real" }, real === undefined ? "no cell" : recorded(real || "empty")));
    }));
  });
  const words = right === all ? `all ${plural(all, "cell")} correct` : `${number(right)} of ${plural(all, "cell")} correct; the true value is below each wrong one`;
  return element("div", {}, element("p", { class: "faint" }, words),
    scrolled(`${whose}Perception`, element("table", { class: "grid" }, element("tbody", {}, rows))));
}
