// Before and after: every figure against a pinned baseline, and the inputs that changed since.
import { make, store, stored, text } from "./boot.js";

const KEY = "dpplan-baseline";
const MOST_NAMED = 6; // inputs that are named one by one
const AS_FACTOR = 2; // a change by more is written as a factor, as planner.units.percent does
let base = stored(KEY, null);

function figures(answer) {
  const values = [...answer.querySelectorAll(".card a")].map((a) => [a.dataset.key, a.querySelector("data")]);
  return Object.fromEntries(values.map(([key, data]) => [key, { value: data.value, shown: data.textContent.trim().replace(/\s+/g, " ") }]));
}

function percent(share) {
  if (share >= AS_FACTOR) return `${(share + 1).toPrecision(2)}x`;
  return `${share > 0 ? "+" : share < 0 ? "−" : ""}${Math.abs(100 * share).toFixed(1)} %`;
}

function shownOf(form, name, value) {
  const control = form.elements[name];
  if (value === null) return control?.dataset.start || text("auto");
  if (name === "config" || name === "calibration") return text("pasted");
  const option = [...(control?.options ?? [])].find((entry) => entry.value === value);
  return option?.dataset.label || option?.text || value;
}

function changes(form, query) {
  const [then, now] = [new URLSearchParams(base.query), new URLSearchParams(query)];
  return [...new Set([...then.keys(), ...now.keys()])]
    .filter((name) => !name.startsWith("from.") && then.getAll(name).join() !== now.getAll(name).join())
    .map((name) => {
      const label = form.querySelector(`[data-field="${name}"] label`)?.textContent ?? name;
      return `${label} ${shownOf(form, name, then.get(name))} → ${shownOf(form, name, now.get(name))}`;
    });
}

export function pin(answer, query, kept = true) {
  base = { query, figures: figures(answer), kept };
  store(KEY, base);
}

// a baseline that somebody pinned outlives the page; else it is what the page began with
export function begin(answer, query) {
  if (!base?.kept) pin(answer, query, false);
}

export function against(answer, form, query) {
  if (!base || !answer.querySelector(".cards")) return;
  const same = base.query === query;
  for (const a of answer.querySelectorAll(".card a")) {
    const [then, data] = [base.figures[a.dataset.key], a.querySelector("data")];
    if (same || !then || then.value === "" || data.value === "") continue;
    const share = Number(data.value) / Number(then.value) - 1;
    if (!Number.isFinite(share)) continue;
    const kind = Math.abs(share) < 5e-4 ? "" : (share < 0) === (a.dataset.better === "less") ? "better" : "worse";
    data.after(make("span", { class: `was ${kind}` }, text("was", { shown: then.shown, change: percent(share) })));
  }
  const changed = same ? [] : changes(form, query);
  const named = changed.slice(0, MOST_NAMED).join("; ") + (changed.length > MOST_NAMED ? text("and_more", { count: changed.length - MOST_NAMED }) : "");
  const line = make("p", { class: "against muted" });
  if (same) line.append(base.kept ? text("is_baseline") : "");
  else line.append(make("strong", {}, text("against")), ` ${named}. `, make("a", { class: "state", href: `/?${base.query}` }, text("baseline_back")), " ");
  const button = (id, words) => line.append(" ", make("button", { type: "button", class: "quiet small", id }, text(words)));
  if (!same || !base.kept) button("pin", "baseline_pin");
  if (base.kept) button("unpin", "baseline_unpin");
  answer.querySelector(".against")?.remove();
  [...answer.querySelectorAll(".cards")].at(-1).after(line);
}
