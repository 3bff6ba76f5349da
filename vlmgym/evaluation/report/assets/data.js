// What the page holds, and episodes as they are needed: from the page itself, or from scripts beside it.

const page = JSON.parse(document.getElementById("page").textContent);
const GAMES = page.games.map((game) => game.id);
const KEPT = 24; // episodes in memory

const loaded = new Map(); // name -> promise of the episode's data, the latest last
const awaited = new Map(); // name -> what to call with data that a script brings

// Called by the scripts beside the page.
window.vlmgymEpisode = (name, data) => {
  const receive = awaited.get(name);
  awaited.delete(name);
  if (receive) receive(data);
};

function loadEpisode(run, cell) {
  const name = `${run}-${cell.number}`;
  const episode = loaded.get(name) ?? readEpisode(name);
  loaded.delete(name);
  loaded.set(name, episode);
  if (loaded.size > KEPT) loaded.delete(loaded.keys().next().value);
  return episode;
}

async function readEpisode(name) {
  const block = document.getElementById(`episode-${name}`);
  if (block) return JSON.parse(block.textContent);
  const file = `${page.folder}/${name}.js`;
  const script = element("script", { src: file });
  try {
    return await new Promise((resolve, reject) => {
      awaited.set(name, resolve);
      script.addEventListener("error", () => reject(new Error(`${file} is not beside this page`)));
      script.addEventListener("load", () => reject(new Error(`${file} does not hold the episode`)));
      document.head.append(script);
    });
  } catch (error) {
    loaded.delete(name);
    throw error;
  } finally {
    awaited.delete(name);
    script.remove();
  }
}
