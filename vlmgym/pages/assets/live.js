// Requests to the server of the page.

async function ask(path, parameters, options) {
  const response = await fetch(`${path}?${new URLSearchParams(parameters)}`, options);
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

const POLL_MILLISECONDS = 500;
const ENDED = "The server has ended; start vlmgym view again.";

// Call `onChange` with each change, {changed, version}, as long as the server runs. A hidden tab asks for none.
function listen(onChange) {
  const notice = element("p", { class: "banner", role: "status", hidden: true });
  document.getElementById("main").prepend(notice);
  let { version } = page.live;
  function say(text) {
    notice.textContent = text;
    notice.hidden = !text;
  }
  async function poll() {
    if (document.hidden) return;
    const news = await ask("live", { since: version }).catch(() => null);
    if (news === null) return say(ENDED);
    if (notice.textContent === ENDED) say("");
    if (news.version === version) return;
    version = news.version;
    try {
      await onChange(news);
      say("");
    } catch (error) { // such as: the run was deleted
      say(error.message);
    }
  }
  const repeat = () => poll().then(() => setTimeout(repeat, POLL_MILLISECONDS));
  repeat();
}
