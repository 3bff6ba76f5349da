showHead();
showScores();
showTables();
showAbout();
showViewer();
document.getElementById("foot").append(element("p", {}, `Made by ${page.madeBy} from the records of the run. This page asks no network for anything.`));
