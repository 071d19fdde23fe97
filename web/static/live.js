// The form of a tab: a change is answered on the page as it stands, part by part; files may be dropped anywhere.
import { boot, make, text } from "./boot.js";
import { dressAll } from "./charts.js";

const QUIET_MS = 250; // after a change, in which the next may follow
const START = new URLSearchParams(boot.start); // what a page fills in where an address leaves it out
const form = () => document.querySelector(".tab-form");
const chosen = () => document.getElementById("f-files");
const behind = (page) => [...page.querySelectorAll(".tab-form ~ *:not(script)")]; // all that answers the form
const filled = () => JSON.stringify([...new FormData(form())].map(([name, value]) => [name, value.name ?? value]));
let running = null;
let timer = 0;

function announce(sentence) {
  form().querySelector(".problem")?.remove();
  if (sentence) form().prepend(make("p", { role: "alert", class: "problem" }, sentence));
}

function busy(on) {
  form().toggleAttribute("aria-busy", on);
  if (on) form().setAttribute("aria-busy", "true");
  document.getElementById("found")?.classList.toggle("old", on);
  form().querySelector(".cancel")?.remove();
  if (!on) return;
  const cancel = make("button", { type: "button", class: "quiet cancel" }, text("cancel"));
  cancel.addEventListener("click", () => {
    running?.abort();
    busy(false);
    for (const node of document.querySelectorAll(".tab-wait")) node.remove();
    announce(text("cancelled"));
  });
  form().querySelector(".tab-submit").append(cancel);
}

// a new form keeps what the server does not send back, what is open, and where the person is
function replaced(next) {
  const now = form();
  for (const name of ["files", "text"]) {
    const [old, fresh] = [now, next].map((form) => form.querySelector(`[name=${name}]`));
    if (old && fresh) fresh.replaceWith(old);
  }
  const open = [...now.querySelectorAll("details")].map((detail) => detail.open);
  const focused = now.contains(document.activeElement) ? document.activeElement : null;
  const scrolled = now.scrollTop;
  [...next.querySelectorAll("details")].forEach((detail, i) => (detail.open ||= open[i] ?? false));
  now.replaceWith(document.adoptNode(next));
  next.scrollTop = scrolled;
  const same = focused && [...next.elements].find((field) => field.name === focused.name && (field.type !== "checkbox" || field.value === focused.value));
  if (same && focused.name) same.focus();
}

function shown(rest) {
  if (!rest.length) return;
  for (const old of behind(document)) old.remove();
  form().after(...rest);
}

function arrived(page, before, push) {
  const next = page.querySelector(".tab-form");
  if (!next) { // the page itself says why an answer is missing
    document.getElementById("found")?.replaceChildren(...page.querySelector("#main").childNodes);
    return;
  }
  const strip = page.querySelector(".strip");
  const rest = behind(page).filter((node) => !node.matches(".tab-wait, .meanwhile")); // before its form is taken from it
  if (filled() === before) replaced(next);
  document.querySelector(".tabs").replaceChildren(...page.querySelector(".tabs").childNodes);
  document.getElementById("strip").replaceChildren(...strip.querySelector("#strip").childNodes);
  document.querySelector(".strip").hidden = strip.hidden;
  shown(rest);
  dressAll(JSON.parse(page.getElementById("boot").textContent).charts ?? []);
  push(page);
}

async function ask(address, request, push) {
  clearTimeout(timer);
  running?.abort();
  const mine = new AbortController();
  running = mine;
  const before = filled();
  announce("");
  busy(true);
  try {
    const response = await fetch(address, { ...request, signal: mine.signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let markup = "";
    for (;;) {
      const { done, value } = await reader.read();
      markup += value ?? "";
      if (!done && !markup.includes('class="tab-wait')) continue;
      const page = new DOMParser().parseFromString(markup, "text/html");
      if (done) {
        arrived(page, before, push);
        break;
      }
      if (page.querySelector(".meanwhile, .tab-wait ~ .tab-wait")) shown(behind(page));
    }
  } catch (error) {
    if (error.name === "AbortError") return; // a newer request, or a closed page
    announce(text("offline"));
  }
  busy(false);
}

function formQuery() {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form())) {
    if (typeof value === "string" && name !== "text" && (value.trim() || START.has(name))) query.append(name, value.trim());
  }
  return query;
}

async function send(focus) {
  const now = form();
  if (chosen()?.files.length || now.elements.text?.value.trim()) {
    const size = [...chosen().files].reduce((sum, file) => sum + file.size, 0);
    if (size > boot.limits.upload) {
      announce(text("upload_large", { most: boot.limits.upload.toLocaleString("en") }));
      return;
    }
    await ask(now.action, { method: "POST", body: new FormData(now) }, (page) => // what the files say is in the address from now on
      history.replaceState(null, "", page.getElementById("main").dataset.address));
  } else {
    const address = `${new URL(now.action).pathname}?${formQuery()}`;
    await ask(address, {}, () => { // the same twice adds no entry to the history
      if (address !== location.pathname + location.search) history.pushState(null, "", address);
    });
  }
  if (focus) document.getElementById("found")?.focus();
}

document.addEventListener("submit", (event) => {
  if (event.target !== form()) return;
  event.preventDefault();
  send(true);
});
document.addEventListener("change", (event) => {
  if (!event.target.closest(".tab-form") || !event.target.name) return;
  clearTimeout(timer);
  timer = setTimeout(send, QUIET_MS, event.target === chosen());
});
addEventListener("popstate", () => ask(location.href, {}, () => {}));
// parts that came before the answer
if (document.getElementById("found")) for (const node of document.querySelectorAll(".meanwhile, .tab-wait")) node.remove();

for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    if (!chosen() || ![...(event.dataTransfer?.types ?? [])].includes("Files")) return;
    event.preventDefault();
    form().querySelector(".drop").classList.toggle("over", kind === "dragover");
    if (kind !== "drop") return;
    chosen().files = event.dataTransfer.files;
    send(true);
  });
}
