// Page data, and episodes loaded on demand from the page itself or from scripts next to it.

const page = JSON.parse(document.getElementById("page").textContent);
const GAMES = page.games.map((game) => game.id);
const KEPT = 12; // files in memory

const files = new Map(); // number -> promise of the file's episodes by name, the most recently used file last
const awaited = new Map(); // script next to the page -> callback that takes its episodes

// Called by the scripts next to the page.
window.vlmgymEpisodes = (episodes) => awaited.get(document.currentScript)?.(episodes);

async function loadEpisode(run, cell) {
  const name = `${run}-${cell.number}`;
  if (cell.file === null) return JSON.parse(document.getElementById(`episode-${name}`).textContent);
  const file = files.get(cell.file) ?? loadFile(cell.file);
  files.delete(cell.file);
  files.set(cell.file, file);
  if (files.size > KEPT) files.delete(files.keys().next().value);
  return (await file)[name];
}

async function loadFile(number) {
  const file = `${page.folder}/${number}.js`;
  const script = element("script", { src: file });
  try {
    return await new Promise((resolve, reject) => {
      awaited.set(script, resolve);
      script.addEventListener("error", () => reject(new Error(`${file} is not next to this page`)));
      script.addEventListener("load", () => reject(new Error(`${file} does not contain the episode`)));
      document.head.append(script);
    });
  } catch (error) {
    files.delete(number);
    throw error;
  } finally {
    awaited.delete(script);
    script.remove();
  }
}
