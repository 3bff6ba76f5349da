// Keys: left and right for turns, j and k (or up and down in the viewer) for episodes, n and b for what went wrong.

function listenToKeys(viewer, actions) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const on = event.target;
    const typing = on instanceof HTMLSelectElement || (on instanceof HTMLInputElement && on.type !== "range");
    if (typing) return;
    const inside = viewer.contains(on);
    const region = on.getAttribute("role") === "region"; // scrolls by itself
    const horizontal = region && on.scrollWidth > on.clientWidth;
    const vertical = region && on.scrollHeight > on.clientHeight;
    const action = {
      ArrowLeft: horizontal ? null : () => actions.turn(-1),
      ArrowRight: horizontal ? null : () => actions.turn(1),
      ArrowUp: inside && !vertical ? () => actions.episode(-1) : null,
      ArrowDown: inside && !vertical ? () => actions.episode(1) : null,
      Home: inside && !vertical ? () => actions.turn(-Infinity) : null,
      End: inside && !vertical ? () => actions.turn(Infinity) : null,
      k: () => actions.episode(-1),
      j: () => actions.episode(1),
      n: () => actions.wrong(1),
      b: () => actions.wrong(-1),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}
