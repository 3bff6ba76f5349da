// Play in the browser: the server holds the episode, and sends its images and the prompt that a model gets.

const KEY_NAMES = { ArrowUp: "up", ArrowRight: "right", ArrowDown: "down", ArrowLeft: "left", " ": "space" };
const asked = new URLSearchParams(location.search);
showHead("Play", ["You see what a model sees: the image, and the prompt beside it. Responses are scored in the same way."]);

const LEVELS = ["1", "2", "3", "4", "5"].map((level) => [level, level]);
const setting = { game: asked.get("game") ?? "2048-v0", perception: asked.get("perception") ?? "3", reasoning: asked.get("reasoning") ?? "3" };
const chooser = (name, label, options) => choice(label, options, (value) => { setting[name] = value; begin(null); }, setting[name]);
const seed = element("input", { type: "number", min: 0, "aria-label": "Seed", placeholder: "random", value: asked.get("seed") ?? "" });
const image = element("img", { alt: "The image that a model gets", class: "played-image" });
const problem = element("p", { class: "banner", role: "alert", hidden: true });
const facts = element("dl", { class: "numbers" });
const last = element("p", { class: "last", role: "status" });
const prompt = element("pre", { tabindex: 0, role: "region", "aria-label": "Prompt for a model" });
const ways = element("p", { class: "faint" });
const typed = element("textarea", { rows: 2, "aria-label": "Answer or whole response", placeholder: "Type an answer or a whole response; Enter sends it" });
const send = element("button", { type: "button", class: "primary", onclick: () => sendText() }, "Send");
const fresh = element("button", { type: "button", onclick: () => begin(null) }, "New episode");

document.getElementById("main").append(
  element("div", { class: "filters play-settings" },
    chooser("game", "Game", page.games.map(({ id }) => [id, id])),
    chooser("perception", "Perception", LEVELS), chooser("reasoning", "Reasoning", LEVELS),
    element("label", {}, element("span", {}, "Seed"), seed), fresh),
  problem,
  element("div", { class: "play" },
    element("section", { class: "panel", "aria-label": "Game" }, image, ways),
    element("section", { class: "panel said", "aria-label": "Prompt and answer" }, facts, last,
      element("h2", {}, "Prompt for a model"), prompt, element("div", { class: "typed" }, typed, send))));

let player = null;
let frame = null;
let pending = Promise.resolve();

// Send requests one after another, in the order of the keys and clicks.
function request(path, body) {
  pending = pending.then(() => post(path, body));
  return pending;
}

async function post(path, body) {
  try {
    show(await ask(path, {}, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }));
    problem.hidden = true;
  } catch (error) {
    problem.hidden = false;
    problem.replaceChildren(...recorded(error.message));
  }
}

function begin() {
  const { game, perception, reasoning } = setting;
  const chosen = seed.value === "" ? null : Number(seed.value);
  history.replaceState(null, "", `play?${new URLSearchParams({ ...setting, ...(chosen === null ? {} : { seed: chosen }) })}`);
  return request("play/new", { game, perception: Number(perception), reasoning: Number(reasoning), seed: chosen });
}

function show(answer) {
  player = answer.player ?? player;
  frame = answer;
  image.src = answer.image;
  image.classList.toggle("clickable", answer.clicks > 0 && !answer.ended);
  facts.replaceChildren(...Object.entries(answer.facts).map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, String(value)))));
  last.className = `last ${answer.outcome}`;
  last.replaceChildren(...recorded(answer.last));
  prompt.replaceChildren(...recorded(answer.prompt));
  ways.textContent = answer.ways;
  typed.disabled = send.disabled = answer.ended;
}

function sendText() {
  const text = typed.value.trim();
  typed.value = "";
  if (text) request("play/respond", { player, text });
}

typed.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey) return;
  event.preventDefault();
  sendText();
});
image.addEventListener("click", (event) => {
  if (!frame?.clicks) return;
  const { left, top, width, height } = image.getBoundingClientRect();
  request("play/respond", { player,
    x: Math.floor(((event.clientX - left) / width) * image.naturalWidth), y: Math.floor(((event.clientY - top) / height) * image.naturalHeight) });
});
document.addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea, button, a, pre")) return;
  const key = KEY_NAMES[event.key] ?? event.key;
  if (!frame || frame.ended || !frame.keys.includes(key)) return;
  event.preventDefault();
  request("play/respond", { player, key });
});
begin();
