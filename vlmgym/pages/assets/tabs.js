// Tabs. `onChoose` is called with a tab's name, and whether a pointer chose it.

function makeTabs(tabs, onChoose) {
  const buttons = new Map(tabs.map(([name, title]) => [name, element("button", {
    type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, onclick: (event) => onChoose(name, event.detail > 0),
  }, title)]));
  const panels = new Map(tabs.map(([name]) => [name, document.getElementById(`panel-${name}`)]));
  for (const [name, panel] of panels) {
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", `tab-${name}`);
  }
  const all = [...buttons.values()];
  const list = element("div", { role: "tablist", class: "tabs", "aria-label": "Parts of the page", onkeydown: move }, all);
  document.getElementById("tabs").append(list);

  function move(event) {
    const at = all.indexOf(event.target);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const button = all[(to + all.length) % all.length];
    button.click();
    button.focus();
  }

  return {
    has: (name) => buttons.has(name),
    show(name) {
      for (const [other, button] of buttons) {
        button.setAttribute("aria-selected", String(other === name));
        button.tabIndex = other === name ? 0 : -1;
        panels.get(other).hidden = other !== name;
      }
    },
  };
}
