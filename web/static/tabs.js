// The bar of tabs: the one shown in sight, and the address as it is now carried over to the next.
import { make, text } from "./boot.js";

const bar = document.querySelector(".tabs");
const inside = bar?.querySelector(".open > ul");
const here = inside?.querySelector("[aria-current]");
if (here) inside.scrollLeft = here.offsetLeft - (inside.clientWidth - here.offsetWidth) / 2;

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
    if (link?.dataset.path && location.search) link.href = carried(link);
  });
}

// a server that is away is said on this page, not by the browser on an empty one
bar?.addEventListener("click", async (event) => {
  const link = event.target.closest("a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  try {
    await fetch(document.querySelector("link[rel=icon]").href, { cache: "no-store" });
  } catch {
    document.querySelector(".away")?.remove();
    bar.after(make("p", { class: "problem away", role: "alert" }, text("offline")));
    return;
  }
  location.href = link.href;
});

// every change is an entry of the history, on every page
document.getElementById("undo")?.addEventListener("click", () => history.back());
document.getElementById("redo")?.addEventListener("click", () => history.forward());
