// Named scenarios and the comparison, kept in this browser only.
import { make, store, stored, text } from "./boot.js";

const SAVED = "dpplan-scenarios";
const COMPARED = "dpplan-compare";
const NAME = 80; // letters, as the page of the comparison takes them
const SLOTS = ["a", "b", "c", "d", "e", "f"];

export function listSaved(go) {
  const list = document.getElementById("saved");
  const saved = stored(SAVED, []);
  list.replaceChildren(...saved.map((entry, i) => {
    const link = make("a", { href: `/?${entry.query}`, class: "state" }, entry.name);
    const remove = make("button", { type: "button", class: "quiet small", "aria-label": `${text("saved_delete")}: ${entry.name}` }, text("saved_delete"));
    remove.addEventListener("click", () => {
      store(SAVED, stored(SAVED, []).filter((_, k) => k !== i));
      listSaved(go);
    });
    return make("li", {}, link, remove);
  }));
  document.getElementById("saved-file").hidden = !saved.length;
  if (!saved.length) list.append(make("li", { class: "muted" }, text("saved_none")));
}

export function save(name, query, go) {
  const others = stored(SAVED, []).filter((entry) => entry.name !== name);
  store(SAVED, [...others, { name, query }].slice(-50));
  listSaved(go);
}

// all saved plans as a file, and back
export function savedFile() {
  return JSON.stringify({ [SAVED]: stored(SAVED, []) }, null, 1);
}

export function loaded(text, go) {
  let plans;
  try {
    plans = JSON.parse(text)[SAVED];
  } catch {
    return false; // a scenario, which the server reads
  }
  if (!Array.isArray(plans)) return false;
  for (const { name, query } of plans) if (typeof name === "string" && typeof query === "string") save(name.slice(0, NAME), query, go);
  return true;
}

export function compareLink() {
  const link = document.getElementById("compared");
  const compared = stored(COMPARED, []);
  link.hidden = compared.length < 2;
  link.querySelector("span").textContent = text("compare_open", { count: compared.length });
  const query = new URLSearchParams();
  compared.forEach((entry, i) => {
    query.set(SLOTS[i], entry.query);
    query.set(`${SLOTS[i]}_name`, entry.name);
  });
  link.href = `/compare?${query}`;
  const clear = document.getElementById("compare-clear");
  if (clear) clear.hidden = compared.length === 0;
  return compared.length;
}

export function addToComparison(name, query) {
  const compared = stored(COMPARED, []).filter((entry) => entry.query !== query);
  if (compared.length >= SLOTS.length) return false;
  store(COMPARED, [...compared, { name: name.slice(0, NAME), query }]);
  compareLink();
  return true;
}

export function clearComparison() {
  store(COMPARED, []);
  compareLink();
}
