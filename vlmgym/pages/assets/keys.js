// Keys: left and right for turns, j and k (or up and down in the list) for episodes, n and b for invalid turns.
// A key acts only while the element it changes is visible, and never while another part of the page has the focus.

function listenToKeys({ viewer, bar, list, slider }, actions) {
  document.addEventListener("keydown", (event) => {
    const on = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey || on instanceof HTMLSelectElement) return;
    if (on !== document.body && !viewer.contains(on)) return;
    const own = on === slider; // moves by itself
    const listed = on === list;
    const scrolls = on.getAttribute("role") === "region";
    const across = own || (scrolls && on.scrollWidth > on.clientWidth);
    const episodes = onScreen(bar) || (listed && onScreen(list));
    const action = {
      ArrowLeft: !across && onScreen(bar) && (() => actions.turn(-1)),
      ArrowRight: !across && onScreen(bar) && (() => actions.turn(1)),
      ArrowUp: listed && episodes && (() => actions.episode(-1)),
      ArrowDown: listed && episodes && (() => actions.episode(1)),
      Home: listed && episodes && (() => actions.episode(-Infinity)),
      End: listed && episodes && (() => actions.episode(Infinity)),
      k: episodes && (() => actions.episode(-1)),
      j: episodes && (() => actions.episode(1)),
      n: onScreen(bar) && (() => actions.wrong(1)),
      b: onScreen(bar) && (() => actions.wrong(-1)),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function onScreen(node) {
  const { top, bottom, height } = node.getBoundingClientRect();
  return height > 0 && bottom > 0 && top < window.innerHeight;
}
