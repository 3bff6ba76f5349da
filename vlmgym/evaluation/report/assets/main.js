showHead();
showOverview();
showCurves();
const viewer = makeViewer();
const tabs = makeTabs([
  ["overview", "Overview"], ["curves", "Curves"], ["episodes", "Episodes"], ...(videos().length ? [["videos", "Videos"]] : []),
], (name, byPointer) => {
  history.pushState(null, "", `#${name}`); // so that the browser's Back works
  route();
  if (name === "episodes" && byPointer) viewer.focus(); // arrow keys are for turns now, not for tabs
});
if (tabs.has("videos")) showVideos();

// Show what the address names: a tab, or an episode and a turn.
function route() {
  const address = location.hash.slice(1) || "overview";
  const found = viewer.find(address);
  if (!found && !tabs.has(address)) return false;
  tabs.show(found ? "episodes" : address);
  if (found || address === "episodes") viewer.show(found);
  return true;
}

if (!route()) tabs.show("overview");
window.addEventListener("hashchange", route);

const largest = Math.max(0, ...GAMES.map((game, i) => page.episodes.filter((row) => row.game === i).length));
document.getElementById("foot").append(
  element("p", {}, `Made by ${page.madeBy} from the records of the run. This page loads nothing from the network.`,
    page.folder ? ` It needs the folder ${page.folder} beside it.` : "",
    page.images !== null && largest > page.images
      ? ` It has images of the first ${plural(page.images, "episode")} of each game.` : ""));
