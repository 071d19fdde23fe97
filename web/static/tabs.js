// The bar of tabs: the one shown in sight, and the address as it is now carried over to the next.
const bar = document.querySelector(".tabs");
const here = bar?.querySelector("[aria-current]");
if (here) bar.scrollLeft = here.offsetLeft - (bar.clientWidth - here.offsetWidth) / 2;

function carried(link) {
  const own = bar.dataset.own.split(" ");
  const kept = new URLSearchParams(location.search);
  for (const name of [...own, "preset", "wait"]) kept.delete(name);
  for (const [name, mark] of [...kept]) { // a default of the page stays there
    if (!name.startsWith("from.") || !mark.startsWith("default|page|")) continue;
    const of = name.slice("from.".length);
    if (`default|page|${kept.get(of)}` === mark) kept.delete(of);
    kept.delete(name);
  }
  return [...kept].length ? `${link.dataset.path}?${kept}` : link.dataset.path;
}

// the page before may have changed its address without asking the server; without one, its links hold
for (const event of ["pointerdown", "focusin", "click"]) {
  bar?.addEventListener(event, ({ target }) => {
    const link = target.closest("a");
    if (link && location.search) link.href = carried(link);
  });
}

// every change is an entry of the history, on every page
document.getElementById("undo")?.addEventListener("click", () => history.back());
document.getElementById("redo")?.addEventListener("click", () => history.forward());
