// Requests to the server of the page, and its events.

async function ask(path, parameters, options) {
  const response = await fetch(`${path}?${new URLSearchParams(parameters)}`, options);
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

// Call `onChange` with each event, {changed, version}, as long as the server runs. Hidden tabs do not listen, because
// browsers allow six connections to a server.
function listen(onChange) {
  const notice = element("p", { class: "banner", role: "status", hidden: true }, "The server has ended; start vlmgym view again.");
  document.getElementById("main").prepend(notice);
  let source = null;
  let { version } = page.live;
  function connect() {
    source?.close();
    source = null;
    if (document.hidden) return;
    source = new EventSource(`live?since=${version}`);
    source.addEventListener("message", (event) => {
      const news = JSON.parse(event.data);
      version = news.version;
      Promise.resolve(onChange(news)).catch((error) => { // such as: the run was deleted
        notice.textContent = error.message;
        notice.hidden = false;
      });
    });
    source.addEventListener("open", () => { notice.hidden = true; });
    source.addEventListener("error", () => { notice.hidden = false; });
  }
  document.addEventListener("visibilitychange", connect);
  connect();
}
