// Assemble images from tiles on canvases, at their original size.

function decoded(images, tile) {
  images.decoded ??= [];
  images.decoded[tile] ??= new Promise((resolve, reject) => {
    const image = new Image();
    image.addEventListener("load", () => resolve(image));
    image.addEventListener("error", () => reject(new Error("an image cannot be decoded")));
    image.src = images.tiles[tile];
  });
  return images.decoded[tile];
}

// Show the images of a state in a holder, which keeps its old content until they are decoded.
async function showImages(holder, images, state, words) {
  const ticket = {};
  holder.ticket = ticket;
  const frame = images.frames[images.shown[state]];
  const drawn = await Promise.all(frame.map((tiles) => Promise.all(tiles.map((tile) => decoded(images, tile)))));
  if (holder.ticket !== ticket) return;
  const old = [...holder.querySelectorAll("canvas")];
  const canvases = drawn.map((tiles, i) => {
    const { columns, rows } = images.cuts[i];
    const canvas = old[i] ?? element("canvas");
    canvas.width = columns.at(-1);
    canvas.height = rows.at(-1);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", words);
    const context = canvas.getContext("2d");
    const across = columns.length - 1;
    tiles.forEach((tile, j) => context.drawImage(tile, columns[j % across], rows[Math.floor(j / across)]));
    return canvas;
  });
  holder.replaceChildren(...canvases);
}
