// Requests to the server of the page, and its events.

async function ask(path, parameters, options) {
  const response = await fetch(`${path}?${new URLSearchParams(parameters)}`, options);
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

// Call `onChange` with each event, {changed, version}, as long as the server runs.
function listen(onChange) {
  const notice = element("p", { class: "banner", role: "status", hidden: true }, "The server has ended; start vlmgym view again.");
  document.getElementById("main").prepend(notice);
  const source = new EventSource(`live?since=${page.live.version}`);
  source.addEventListener("message", (event) => onChange(JSON.parse(event.data)));
  source.addEventListener("open", () => { notice.hidden = true; });
  source.addEventListener("error", () => { notice.hidden = false; });
}
