// Keys without a modifier, outside of fields: they press what is on the page, and `?` lists them.
import { make, store, stored, text } from "./boot.js";

const OFF = "dpplan-keys-off";
const press = (selector) => () => document.querySelector(selector)?.click();
const KEYS = {
  "/": ["keys_search", () => document.querySelector(".search")?.focus()],
  g: ["keys_gpus", () => document.getElementById("n-gpus")?.focus()],
  b: ["baseline_pin", press("#pin")],
  c: ["compare_add", press("#add")],
  l: ["share", press("#share")],
  s: ["save", press("#save")],
  e: ["export", press("#export")],
  r: ["report", press("#report")],
  p: ["presets", press("#presets")],
  "[": ["preset_before", press(".preset [rel=prev]")],
  "]": ["preset_next", press(".preset [rel=next]")],
  "?": ["keys", list],
};

function list() {
  const rows = Object.entries(KEYS).map(([key, [name]]) => make("div", {}, make("dt", {}, make("kbd", {}, key)), make("dd", {}, text(name))));
  const off = make("input", { type: "checkbox", checked: stored(OFF, false) });
  off.addEventListener("change", () => store(OFF, off.checked));
  document.getElementById("drawer-title").textContent = text("keys");
  document.getElementById("drawer-body").replaceChildren(make("dl", { class: "keys" }, ...rows), make("label", {}, off, ` ${text("keys_off")}`));
  document.getElementById("drawer").showModal();
}

export function pressed(key) {
  if (key !== "?" && stored(OFF, false)) return;
  KEYS[key]?.[1]();
}
