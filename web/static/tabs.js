// The bar of tabs: the one shown in sight, and the address as it is now carried over to the next. It runs before a
// page that comes in parts is whole, so it takes nothing from there.
const linked = (event) => event.target.closest?.(".tabs a");

function carried(link) {
  const ownKeys = link.closest(".tabs").dataset.own.split(" ");
  const kept = new URLSearchParams(location.search);
  for (const name of [...ownKeys, "preset", "wait"]) kept.delete(name);
  for (const [name, mark] of [...kept]) { // a default of the page stays there
    if (!name.startsWith("from.") || !mark.startsWith("default|page|")) continue;
    const option = name.slice("from.".length);
    if (`default|page|${kept.get(option)}` === mark) kept.delete(option);
    kept.delete(name);
  }
  return [...kept].length ? `${link.dataset.path}?${kept}` : link.dataset.path;
}

// the page before may have changed its address without asking the server; without one, its links hold
for (const kind of ["pointerdown", "focusin", "click"]) {
  document.addEventListener(kind, (event) => {
    const link = linked(event);
    if (link?.dataset.path && location.search) link.href = carried(link);
  });
}

// a server that is away is reported on this page, not by the browser on an empty one
document.addEventListener("click", async (event) => {
  const link = linked(event);
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  try {
    await fetch(document.querySelector("link[rel=icon]").href, { cache: "no-store" });
  } catch {
    const { make, text } = await import("./boot.js");
    document.querySelector(".away")?.remove();
    document.querySelector(".tabs").after(make("p", { class: "problem away", role: "alert" }, text("offline")));
    return;
  }
  location.href = link.href;
});

// every change is an entry of the history, on every page
document.addEventListener("click", (event) => {
  const id = event.target.closest?.("button")?.id;
  if (id === "undo") history.back();
  if (id === "redo") history.forward();
});

const LONG = 25; // entries from which a list of boxes is searched

// a list of boxes is searched by any of its words; what is ticked stays in sight
async function searchable(list) {
  const { make, text } = await import("./boot.js");
  const labels = [...list.querySelectorAll("label")];
  const name = `${list.getAttribute("aria-label")}: ${text("search_in")}`;
  const field = make("input", { type: "search", class: "search", placeholder: text("search", { count: labels.length }), "aria-label": name, autocomplete: "off" });
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const label of labels) {
      const box = label.querySelector("input");
      const haystack = `${label.textContent} ${box.value}`.toLowerCase();
      label.hidden = !box.checked && !words.every((word) => haystack.includes(word));
    }
  });
  field.addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault());
  list.prepend(field);
}

addEventListener("DOMContentLoaded", () => {
  for (const list of document.querySelectorAll(".several .choices")) if (list.querySelectorAll("label").length >= LONG) searchable(list);
  const inside = document.querySelector(".tabs .open > ul");
  const here = inside?.querySelector("[aria-current]");
  if (here) inside.scrollLeft = here.offsetLeft - (inside.clientWidth - here.offsetWidth) / 2;
});
