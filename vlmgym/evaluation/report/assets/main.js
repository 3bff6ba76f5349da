showHead();
showScores();
showTables();
showAbout();
showViewer();

const largest = Math.max(0, ...GAMES.map((game, i) => page.episodes.filter((row) => row.game === i).length));
document.getElementById("foot").append(
  element("p", {}, `Made by ${page.madeBy} from the records of the run. This page asks no network for anything.`,
    page.folder ? ` It needs the folder ${page.folder} beside it.` : "",
    page.pictures !== null && largest > page.pictures
      ? ` It has pictures of the first ${plural(page.pictures, "episode")} of each game.` : ""));
