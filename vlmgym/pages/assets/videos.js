// The list of videos, which are stored next to the page.

function videos() {
  return page.episodes.flatMap((row) => row.runs.flatMap((cell, run) => cell?.video ? [{ row, cell, run }] : []));
}

function showVideos() {
  const several = page.runs.length > 1;
  const rows = videos().map(({ row, cell, run }) => [
    `${GAMES[row.game]}, seed ${row.seed}`, ...(several ? [page.runs[run].label] : []),
    cell.score === null ? cell.status : number(cell.score), `${cell.turns}`, videoLink(row, cell, run)]);
  document.getElementById("panel-videos").append(element("h2", {}, "Videos"),
    scrolled("Videos", rowsOf(["episode", ...(several ? ["run"] : []), "score", "turns", "video"], rows)));
}

function videoLink(row, cell, run) {
  const whose = page.runs.length > 1 ? ` of ${page.runs[run].label}` : "";
  return element("a", { href: cell.video, "aria-label": `Video${whose}: ${GAMES[row.game]}, seed ${row.seed}` }, "video");
}
