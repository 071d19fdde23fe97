// The dashboard: the form is the state, the address is the state, and every answer comes from the server.
import { against, begin, pin } from "./baseline.js";
import { boot, make, text } from "./boot.js";
import { dress, sectionOf, show } from "./charts.js";
import { enhance, fillForm, nameAuto, queryOf, relabel, searchable } from "./controls.js";
import { open } from "./drawer.js";
import { Latest, Replaceable } from "./net.js";
import { themed } from "./page.js";
import { addToComparison, clearComparison, compareLink, listSaved, loaded, save, savedFile } from "./scenarios.js";

const QUIET_MS = 160; // after the last change before slower parts are requested
const form = document.getElementById("form");
const answer = document.getElementById("answer");
const status = document.getElementById("status");
const slots = [...document.querySelectorAll("[data-panel]")];
const OWN_LAYOUT = ["roofline", "schedule", "crossover"];
// a published run or `wait` belongs only to the first page: later requests state options
const addressed = () => (/(^|&)(preset|wait)=/.test(location.search.slice(1)) ? boot.query : location.search.slice(1) || boot.query);
let current = addressed();
let fixed = boot.fixed;
let quiet = 0;
let shown = current; // the state whose figures are there
let drawnOf = current; // and of the charts
let chartsInSight = false;
const lateCharts = new Replaceable();
let dragging = false;

// ------------------------------------------------------------------------------------------------ answer and charts

// figures of another state than the inputs have are marked until their own are there, and lead nowhere
function pending(on) {
  document.body.classList.toggle("pending", on);
  answer.setAttribute("aria-busy", String(on));
}

function staleAdvice(on) {
  const panel = document.getElementById("advice");
  panel.classList.toggle("old", on);
  panel.setAttribute("aria-busy", String(on));
  const tip = document.getElementById("tip");
  tip?.setAttribute("aria-busy", String(on));
  for (const link of document.querySelectorAll("#advice a.state, #tip a.state")) link.setAttribute("aria-disabled", String(on));
}

function painted(view, query, more) {
  const tip = document.getElementById("tip"); // stays, marked as old, until the newer is there
  answer.innerHTML = view.answer;
  document.getElementById("strip").innerHTML = view.strip;
  if (tip) document.getElementById("tip")?.replaceWith(tip);
  against(answer, form, query);
  pending(more);
  answer.dataset.query = view.query;
  answer.classList.remove("stale");
  document.title = `${view.title} · dpplan`;
  fixed = view.fixed;
  const main = document.getElementById("main");
  main.classList.remove("stale");
  if (!document.getElementById("charts")) {
    location.reload(); // the page began with a request that could not be answered and has no place for charts
    return;
  }
  const export_ = document.getElementById("export");
  if (export_) export_.href = `/export?${view.query}`;
  document.getElementById("report").href = `/report?${view.query}`;
  nameAuto(form, { ...view.layout });
  performance.mark("numbers");
  shown = query;
  document.body.dataset.painted = query;
  if (view.charts.length) charts(view.charts, query);
  else performance.mark("seen"); // none is in sight
  if (!more) status.textContent = text("ready", { step: view.said.split(", ")[0], verdict: view.said.split(", ").slice(1).join(", ") });
}

// the numbers of a chart of the first answer, which are sent when somebody wants them
function wholeOf(name, query) {
  return async () => {
    const response = await fetch(`/page/view?${query}&tables=1`);
    return response.ok ? (await response.json()).charts.find((chart) => chart.name === name) : null;
  };
}

// charts follow the numbers where they are in sight, else when they come into it
function charts(docs, query) {
  const place = document.getElementById("charts");
  for (const old of place.querySelectorAll(":scope > [data-chart]")) old.hidden = !docs.some((doc) => doc.name === old.dataset.chart);
  for (const doc of docs.toReversed()) { // one that the page began without comes first
    const section = document.getElementById(`chart-${doc.name}`) ?? place.insertAdjacentElement("afterbegin", sectionOf(doc));
    show(section, doc, wholeOf(doc.name, query));
  }
  drawnOf = query;
  performance.mark("seen");
}

async function catchUp() {
  if (drawnOf === shown || !chartsInSight) return;
  const reply = await lateCharts.ask(`/page/view?${shown}&charts=1`);
  if (reply?.ok) charts(reply.answer.charts, reply.answer.query);
}

// the same with the layout left to the search: what was fixed for one model seldom suits another
function freed() {
  const query = new URLSearchParams(current);
  for (const field of form.querySelectorAll('[data-group="layout"] [name]')) query.delete(field.name);
  return query.toString();
}

function failed(problem) {
  document.getElementById("main").classList.add("stale");
  const line = answer.querySelector(".problem") ?? answer.insertAdjacentElement("afterbegin", make("p", { class: "problem", role: "alert" }));
  line.textContent = problem ? problem.message : text("offline");
  const searched = freed();
  if (problem && searched !== current) line.append(" ", make("a", { class: "state", href: `/?${searched}` }, text("search_layout")));
  pending(false);
  shown = current;
  document.body.dataset.painted = current;
}

const view = new Latest((query) => `/page/view?${query}${chartsInSight ? "&charts=1" : ""}`, painted, failed);
const choices = new Latest((query) => `/page/form?${query}`, (reply) => relabel(form, reply.choices), () => {});
const late = new Replaceable();

async function askLate() {
  const body = document.getElementById("advice-body");
  const reply = await late.ask(`/page/late?${current}`);
  if (!reply) return;
  staleAdvice(false);
  if (!reply.ok) {
    body.replaceChildren(make("p", { class: "muted" }, reply.answer?.message ?? text("offline")));
    return;
  }
  body.innerHTML = reply.answer.advice;
  document.getElementById("families-body").innerHTML = reply.answer.families;
  assumed(reply.answer.assumed);
  advised(reply.answer.tip);
  document.getElementById("rests-body").innerHTML = reply.answer.rests;
  document.body.dataset.late = current;
}

// the first advice in a sentence, beside what limits the step
function advised(markup) {
  const tip = document.getElementById("tip");
  if (tip && markup.trim()) tip.innerHTML = markup;
}

function assumed(share) {
  const line = document.getElementById("assumed");
  if (line && share) line.textContent = share;
}

// a new state is requested
function ask() {
  pending(true);
  staleAdvice(true);
  view.ask(current);
  soon();
}

function soon() {
  clearTimeout(quiet);
  quiet = setTimeout(() => {
    choices.ask(current);
    askLate();
    for (const slot of slots) if (slot.dataset.seen) load(slot);
  }, QUIET_MS);
}

// one entry of the history for a whole drag: its first step makes it, the others replace it, its end (stay) closes it
function go(query, stay = true) {
  const open_ = dragging;
  dragging = !stay;
  if (query === current) return;
  current = query;
  ask(); // before the address, which takes longer than sending the request
  const address = `/?${query}`;
  if (open_) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
}

function jump(query) {
  if (query === current) return;
  history.pushState(null, "", `/?${query}`);
  arrive();
}

function arrive() {
  current = addressed();
  fillForm(form, current);
  ask();
}

// ------------------------------------------------------------------------------------------------------- panels

const loads = new Map(slots.map((slot) => [slot, new Replaceable()]));

async function load(slot) {
  const name = slot.dataset.panel;
  const state = OWN_LAYOUT.includes(name) ? fixed : current;
  if (slot.dataset.shown === state) return;
  if (!slot.querySelector(".plot")) slot.querySelector(".wait").textContent = text("chart_wait");
  slot.classList.add("loading");
  const reply = await loads.get(slot).ask(`/page/panel/${name}?${state}`);
  if (!reply) return;
  slot.classList.remove("loading");
  if (!reply.ok) {
    slot.replaceChildren(make("section", { class: "chart panel" }, make("h3", {}, slot.dataset.title),
      make("p", { class: "muted wait" }, reply.answer?.message ?? text("offline"))));
    slot.dataset.shown = state;
    return;
  }
  const old = slot.querySelectorAll("[data-chart]");
  const sections = reply.answer.charts.map((doc, i) => (old[i]?.dataset.chart === doc.name ? old[i] : sectionOf(doc)));
  if (sections.some((section, i) => section !== old[i]) || old.length !== sections.length) slot.replaceChildren(...sections);
  reply.answer.charts.forEach((doc, i) => show(sections[i], doc, async () => doc));
  slot.dataset.shown = state;
  slot.hidden = !reply.answer.charts.length; // such as the schedule of a layout without a pipeline
}

const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const slot = entry.isIntersecting && entry.target.closest("[data-panel]"); // none once its chart has replaced it
    if (!slot || slot.dataset.seen) continue;
    slot.dataset.seen = "1";
    load(slot);
  }
}, { rootMargin: "300px" });

// -------------------------------------------------------------------------------------------------------- wiring

function notify(message) {
  status.textContent = message;
  const note = make("p", { class: "toast" }, message);
  document.body.append(note);
  setTimeout(() => note.remove(), 2500);
}

document.addEventListener("click", (event) => {
  if (event.target.closest("#pin, #unpin")) {
    pin(answer, current, event.target.id === "pin");
    for (const was of answer.querySelectorAll(".was")) was.remove();
    against(answer, form, current);
    return;
  }
  if (event.target.closest(".bar")) answer.scrollIntoView({ block: "start" });
  const link = event.target.closest("a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  if (link.matches("a.state")) {
    event.preventDefault();
    if (link.closest("[aria-busy=true]")) notify(text("still_old"));
    else jump(new URL(link.getAttribute("href"), location.href).search.slice(1)); // also of a link inside a drawing
  } else if (link.matches("a.explain")) {
    event.preventDefault();
    const label = link.querySelector(".label")?.textContent;
    open(link.getAttribute("href"), label ? `${text("explain_number")}: ${label}` : text("explain_title"), link.dataset.part);
  } else if (link.matches("a.drawer")) {
    event.preventDefault();
    open(link.href, link.title || link.textContent.trim());
  } else if (link.matches("a.compute")) {
    event.preventDefault();
    const slot = link.closest("[data-panel]");
    slot.dataset.seen = "1";
    load(slot);
  }
});

async function pasted(input, name, most) {
  const file = input.files[0];
  if (!file) return;
  if (file.size > most * 8) return notify(`${file.name}: ${file.size} B > ${most} B`);
  let content = await file.text();
  if (name === "config") {
    try {
      content = JSON.stringify(JSON.parse(content));
    } catch {
      // not JSON: a model TOML, or something the server will name
    }
  }
  if (content.length > most) return notify(`${file.name}: ${content.length} > ${most}`);
  form.elements[name].value = content;
  input.value = "";
  replaceChosen(form.elements[name]);
}

// a pasted model takes the place of the one that was chosen, which comes back when the text is cleared
function replaceChosen(field) {
  const { model, config } = form.elements;
  if (field === config) {
    if (config.value.trim()) {
      if (model.value) model.dataset.chosen = model.value;
      model.value = "";
    } else if (!model.value) model.value = model.dataset.chosen ?? new URLSearchParams(boot.start).get("model");
  }
  go(queryOf(form));
}

function wire() {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go(queryOf(form));
  });
  enhance(form, (stay) => go(queryOf(form), stay));
  for (const select of form.querySelectorAll("select")) searchable(select);
  for (const name of ["config", "calibration"]) {
    const field = form.elements[name];
    field?.addEventListener("paste", () => setTimeout(() => replaceChosen(field)));
    field?.addEventListener("change", (event) => {
      event.stopPropagation();
      replaceChosen(field);
    });
  }
  addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=range], [type=checkbox]), select, textarea, dialog[open]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") event.preventDefault();
    import("./keys.js").then((keys) => keys.pressed(event.key));
  });
  addEventListener("popstate", arrive);
  document.getElementById("config-file")?.addEventListener("change", (e) => pasted(e.target, "config", boot.limits.config));
  document.getElementById("calibration-file")?.addEventListener("change", (e) => pasted(e.target, "calibration", boot.limits.calibration));
  document.getElementById("scenario-file")?.addEventListener("change", async (event) => {
    const file = event.target.files[0];
    if (!file) return;
    if (file.size > boot.limits.scenario) return notify(`${file.name}: ${file.size} B > ${boot.limits.scenario} B`);
    const content = await file.text();
    event.target.value = "";
    if (loaded(content, jump)) return notify(text("saved_loaded"));
    const response = await fetch("/page/scenario", { method: "POST", headers: { "Content-Type": "application/toml" }, body: content });
    const reply = await response.json();
    if (response.ok) jump(reply.query);
    else notify(reply.message);
  });
  document.getElementById("share").addEventListener("click", async () => {
    const link = `${location.origin}/?${current}`;
    const here = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
    try {
      await navigator.clipboard.writeText(link);
      notify(text(here ? "shared_here" : "shared"));
    } catch {
      prompt(text("share_by_hand"), link);
    }
  });
  document.getElementById("print").addEventListener("click", async () => {
    chartsInSight = true; // on paper
    await catchUp();
    print();
  });
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-card]");
    if (button) (await import("./card.js")).saved(button.dataset.card, current);
  });
  addEventListener("beforeprint", () => document.querySelectorAll("#answer details, #families, #rests details").forEach((detail) => (detail.open = true)));
  document.getElementById("add").addEventListener("click", () => {
    const added = addToComparison(scenarioName(), current);
    notify(added ? text("compare_add") : text("compare_full"));
  });
  document.getElementById("compare-clear").addEventListener("click", clearComparison);
  document.getElementById("save-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const name = event.target.elements.name.value.trim() || scenarioName();
    save(name, current, jump);
    event.target.reset();
  });
  document.getElementById("save").addEventListener("click", () => {
    const field = document.getElementById("save-name");
    field.value = scenarioName();
    field.scrollIntoView({ block: "center" });
    field.focus();
  });
  document.getElementById("saved-file").addEventListener("click", () => {
    const link = make("a", { href: URL.createObjectURL(new Blob([savedFile()], { type: "application/json" })), download: "dpplan-plans.json" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  themed();
  listSaved(jump);
  compareLink();
}

function scenarioName() {
  const layout = document.getElementById("degrees")?.textContent.split(",").slice(0, 4).join(",") ?? "";
  const gpus = form.elements.gpus.value;
  const model = form.elements.model.value || "config";
  return `${model}, ${gpus} x ${form.elements.gpu.value}, ${layout}`.slice(0, 80);
}

wire();
const phone = matchMedia("(max-width: 900px)").matches;
const inputs = document.getElementById("inputs");
if (phone) answer.after(inputs); // the answer first
else document.getElementById("main").before(inputs); // where they are seen, they are reached
if (phone) for (const group of form.querySelectorAll("details.group")) group.open = ["model", "cluster"].includes(group.dataset.group);
nameAuto(form, boot.layout ?? {});
begin(answer, current);
against(answer, form, current);
advised(document.getElementById("tip-ready")?.innerHTML ?? "");
const early = document.getElementById("rests");
assumed(early?.dataset.assumed);
new IntersectionObserver(([seen]) => document.body.classList.toggle("scrolled", !seen.isIntersecting), { rootMargin: "-320px 0px 0px 0px" }).observe(answer);
for (const section of document.querySelectorAll("#charts > [data-chart]")) dress(section, wholeOf(section.dataset.chart, current));
const first = document.querySelector("#charts > [data-chart]");
if (first) {
  new IntersectionObserver((entries) => {
    chartsInSight = entries.at(-1).isIntersecting;
    catchUp();
  }, { rootMargin: "100px" }).observe(document.getElementById("charts"));
}
document.body.dataset.painted = current;
performance.mark("wired");
performance.mark("painted");
for (const slot of slots) {
  slot.dataset.title = slot.querySelector("h3").textContent;
  watcher.observe(slot.querySelector("section"));
}
if (document.getElementById("advice").dataset.ready !== "yes" && boot.charts) askLate();
else document.body.dataset.late = current;
