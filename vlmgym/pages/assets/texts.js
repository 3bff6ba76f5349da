// Elements and texts. Recorded text only ever becomes text nodes.

function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function drawing(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null));
  return node;
}

// Invisible characters, and those that change the text direction; emoji joiners are kept.
const UNSEEN =
  /([\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}])/u;

function characterName(character) {
  const code = character.codePointAt(0);
  if (code < 32) return String.fromCodePoint(0x2400 + code);
  if (code === 127) return "\u2421";
  return "U+" + code.toString(16).toUpperCase().padStart(4, "0");
}

// Convert recorded text to nodes.
function recorded(text) {
  if (text === null || text === undefined) return [];
  return text.split(UNSEEN).map((part, i) => {
    if (i % 2 === 0) return document.createTextNode(part);
    return element("span", { class: "unseen", title: "an invisible character" }, characterName(part));
  });
}

function number(value, digits = 2) {
  if (value === null || value === undefined) return "";
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

function signed(value) {
  return (value > 0 ? "+" : value < 0 ? "\u2212" : "") + number(Math.abs(value));
}

function percent(share) {
  return (100 * share).toFixed(1) + "%";
}

function plural(count, word) {
  return `${number(count)} ${word}${count === 1 ? "" : "s"}`;
}

const OUTCOMES = ["played", "illegal", "unparsable"];
const OUTCOME_SIGNS = { played: "\u2713", illegal: "\u2715", unparsable: "?" };

// Page data, and episodes: base64 of JSON compressed by zlib or, on a page with a server, JSON from there.

const page = JSON.parse(document.getElementById("page").textContent);

// The head of the page, with links to the other pages of its server.
function showHead(title, leads) {
  const pages = [["./", "Runs"], ["play", "Play"]].map(([href, words]) => element("a", { href }, words));
  const head = document.getElementById("head");
  head.replaceChildren(element("p", { class: "maker" }, "vlmgym", page.live ? pages : null), element("h1", {}, recorded(title)));
  return fill(head, {}, leads.map((words) => element("p", { class: "lead" }, recorded(words))));
}
