// Sliders made of the form's lists: one step per value; what is not possible stays, and says why.
import { boot, make, text } from "./boot.js";

const PAGE = new URLSearchParams(boot.start); // what the page fills in where an address leaves it out

export function queryOf(form) {
  const out = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    if (typeof value !== "string") continue;
    const { dataset } = form.elements[name];
    if (dataset?.default === value.trim() || (value.trim() === "" && !PAGE.has(name))) continue; // a default is left out
    out.append(name, value.trim());
  }
  return out.toString();
}

export function fillForm(form, query) {
  const stated = new URLSearchParams(query);
  for (const [name, value] of stated) {
    if (name.startsWith("from.") && !form.elements[name]) form.append(make("input", { type: "hidden", name, value })); // what a file says
  }
  for (const control of form.elements) {
    if (!control.name) continue;
    const value = stated.get(control.name) ?? control.dataset.start ?? "";
    if (control.tagName === "SELECT" && ![...control.options].some((option) => option.value === value)) {
      control.append(new Option(value, value));
    }
    control.value = value;
    if (control.slider) sync(control);
    const folded = control.closest("details.more");
    if (folded && value !== (control.dataset.start ?? "")) folded.open = true;
  }
}

function sync(select) {
  const { slider, ticks } = select;
  shownIn(select);
  slider.max = String(select.options.length - 1);
  slider.value = String(select.selectedIndex);
  spoken(select, select.selectedIndex);
  const old = ticks.children;
  if (old.length !== select.options.length) ticks.replaceChildren(...[...select.options].map(() => make("i")));
  [...select.options].forEach((option, i) => {
    ticks.children[i].className = option.dataset.reason ? "bad" : i === select.selectedIndex ? "on" : "";
  });
}

function spoken(select, index) {
  const option = select.options[index];
  if (!option) return;
  const reason = option.dataset.reason;
  select.slider.setAttribute("aria-valuetext", reason ? `${option.dataset.label}: ${text("not_possible")}, ${reason}` : option.text);
}

function hint(select, message) {
  const line = select.closest(".field").querySelector(".hint");
  if (!line.dataset.help) line.dataset.help = line.textContent;
  line.textContent = message ?? line.dataset.help;
  line.classList.toggle("bad", Boolean(message));
}

const TOKENS = /^([\d.]+)\s*([kmg]?)(i?)\s*(?:t|tok|tokens?)$/i;
const POWERS = { "": 0, k: 1, m: 2, g: 3 };

// a batch in tokens is the whole number of sequences nearest to it
function inSequences(select, typed) {
  const match = TOKENS.exec(typed);
  const length = Number(select.form.dataset.seq);
  if (!match || !length || select.name !== "global_batch") return typed;
  return String(Math.max(1, Math.round((Number(match[1]) * (match[3] ? 1024 : 1000) ** POWERS[match[2].toLowerCase()]) / length)));
}

function count(value) {
  return new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3, notation: "compact" }).format(value);
}

// what a batch of sequences is in tokens
function inTokens(form, { seq_len: length, global_batch: batch }) {
  form.dataset.seq = length ?? "";
  const field = form.elements.global_batch?.closest(".field");
  if (!field || !length || !batch) return;
  const line = field.querySelector(".note") ?? field.appendChild(make("p", { class: "note muted" }));
  line.textContent = text("batch_tokens", { batch: batch.toLocaleString("en-US"), length: length.toLocaleString("en-US"), tokens: count(batch * length) });
}

const LONG = 25; // entries from which a list is searched

// a long list is searched by any of its words: what matches opens below, Enter takes the first
export function searchable(select) {
  if (select.options.length < LONG || select.slider) return;
  const label = select.form.querySelector(`label[for="${select.id}"]`).textContent;
  const field = make("input", { type: "search", class: "search", placeholder: text("search", { count: select.options.length }), "aria-label": `${label}: ${text("search_in")}`, "aria-controls": select.id, autocomplete: "off" });
  const end = () => {
    field.value = "";
    select.size = 1;
    for (const option of select.querySelectorAll("[hidden]")) option.hidden = false;
  };
  const matches = () => [...select.options].filter((option) => !option.hidden);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return end();
    for (const option of select.options) {
      const label = `${option.parentNode.label ?? ""} ${option.text} ${option.value}`.toLowerCase();
      option.hidden = option.value === "" || !words.every((word) => label.includes(word));
    }
    for (const group of select.querySelectorAll("optgroup")) group.hidden = ![...group.children].some((option) => !option.hidden);
    select.size = Math.max(2, Math.min(8, matches().length + select.querySelectorAll("optgroup:not([hidden])").length));
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") end();
    if (event.key === "ArrowDown") select.focus();
    if (event.key !== "Enter") return;
    event.preventDefault();
    const [first] = matches();
    if (!field.value || !first) return;
    select.value = first.value;
    select.dispatchEvent(new Event("change", { bubbles: true }));
  });
  select.addEventListener("change", end);
  select.addEventListener("keydown", (event) => event.key === "Enter" && end());
  select.before(field);
}

// beside a slider a plain field takes any number: what the list lacks joins it
function anyNumber(select, label) {
  const field = make("input", { type: "text", inputmode: "numeric", class: "any", id: `n-${select.name}`, "aria-describedby": `h-${select.name}`, autocomplete: "off" });
  label.htmlFor = field.id;
  select.hidden = true;
  select.field = field;
  const untyped = () => {
    select.typing = false;
    shownIn(select);
  };
  const taken = () => {
    select.typing = false;
    const value = inSequences(select, field.value.trim().replaceAll(",", ""));
    if (value === select.value || (value === "" && select.options[0]?.value !== "")) return shownIn(select);
    if (![...select.options].some((option) => option.value === value)) select.append(new Option(value, value));
    select.value = value;
    select.dispatchEvent(new Event("change", { bubbles: true }));
  };
  field.addEventListener("focus", () => field.select());
  field.addEventListener("input", () => (select.typing = true));
  field.addEventListener("blur", untyped);
  field.addEventListener("change", (event) => {
    event.stopPropagation();
    taken();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") untyped();
    if (event.key !== "Enter") return;
    event.preventDefault();
    taken();
  });
  select.after(field);
}

// The plain field says what its list has chosen, grouped; "auto" stands behind it as long as it is empty. What
// somebody is typing stays: an answer to an earlier change may arrive between two keys.
function shownIn(select) {
  if (!select.field || select.typing) return;
  const number = Number(select.value);
  select.field.value = select.value && Number.isFinite(number) ? number.toLocaleString("en-US") : select.value;
  const empty = select.options[0]?.value === "" ? select.options[0] : null;
  select.field.placeholder = empty?.dataset.label ?? empty?.text ?? "";
}

// moved(stay): the form has changed; not yet to stay while a slider is dragged
export function enhance(form, moved) {
  for (const select of form.querySelectorAll("select[data-slider]")) {
    const label = form.querySelector(`label[for="${select.id}"]`);
    const slider = make("input", { type: "range", min: "0", step: "1", "aria-label": text("slider_of", { label: label.textContent }), "data-for": select.name });
    const ticks = make("span", { class: "ticks", "aria-hidden": "true" });
    Object.assign(select, { slider, ticks });
    select.before(make("span", { class: "track" }, slider, ticks));
    anyNumber(select, label);
    slider.addEventListener("input", () => {
      const index = Number(slider.value);
      const option = select.options[index];
      spoken(select, index);
      if (option.dataset.reason) {
        hint(select, `${option.dataset.label}: ${option.dataset.reason}`);
        return;
      }
      hint(select, null);
      if (index === select.selectedIndex) return;
      select.selectedIndex = index;
      sync(select);
      moved(false);
    });
    slider.addEventListener("change", () => {
      if (select.options[Number(slider.value)].dataset.reason) slider.value = String(select.selectedIndex);
      else moved(true);
    });
    sync(select);
  }
  form.addEventListener("change", (event) => {
    const control = event.target;
    if (control.type === "file" || control.type === "range" || !control.name) return;
    if (control.slider) {
      sync(control);
      hint(control, null);
    }
    if (control.name === "model") {
      const { config } = form.elements;
      if (control.value !== "") config.value = "";
      else if (!config.value) {
        config.closest("details").open = true;
        config.focus();
        return;
      }
    }
    moved(true);
  });
}

// legal values have changed with the state: options stay, what they say changes
export function relabel(form, choices) {
  for (const [name, offered] of Object.entries(choices)) {
    const select = form.elements[name];
    if (!select || select.tagName !== "SELECT") continue;
    const drawn = JSON.stringify([select.value, offered]);
    if (select.drawn === drawn) continue; // drawing hundreds of options again takes longer than a frame
    select.drawn = drawn;
    const value = select.value;
    const empty = select.options[0]?.value === "" ? [select.options[0]] : [];
    const options = offered.map((choice) => {
      const option = new Option(choice.reason ? `${choice.label} – ${choice.reason}` : choice.label, choice.value);
      option.dataset.label = choice.label;
      if (choice.reason) option.dataset.reason = choice.reason;
      option.disabled = Boolean(choice.reason) && choice.value !== value;
      return option;
    });
    if (value !== "" && !offered.some((choice) => choice.value === value)) options.push(new Option(value, value));
    select.replaceChildren(...empty, ...options);
    select.value = value;
    if (select.slider && document.activeElement !== select.slider) sync(select);
    else if (select.slider) {
      select.slider.max = String(select.options.length - 1);
      sync(select);
    }
  }
}

// "auto" says what it came to
export function nameAuto(form, layout) {
  inTokens(form, layout);
  for (const [name, value] of Object.entries(layout)) {
    const select = form.elements[name];
    const option = select?.options?.[0];
    if (!option || option.value !== "") continue;
    const shown = value === true ? text("yes") : value === false ? text("no") : typeof value === "number" ? value.toLocaleString("en-US") : value;
    option.text = select.value === "" ? text("auto_is", { value: shown }) : text("auto"); // of a value that was chosen, auto is not known
    option.dataset.label = option.text;
    if (select.slider) spoken(select, select.selectedIndex);
    shownIn(select);
  }
}
