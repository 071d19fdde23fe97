// Plotly figures in the colors of the page, their tables, and their downloads. Figures come from the server as they are.
import { boot, make, text } from "./boot.js";

const CONFIG = { displaylogo: false, displayModeBar: false, showSendToCloud: false, plotlyServerURL: "", responsive: true };
const HEIGHT = 330;
const drawn = new Map();

// ------------------------------------------------------------------------------------------------ when charts are drawn

const waiting = new Map(); // sections whose chart is not drawn yet, and what draws its newest
const seen = new Map(); // sections: whether they are in sight, or nearly
let all = false; // whether those out of sight are drawn as well
let drawing = null;
let first = true; // the figures of a page that opens are there already
const sight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) seen.set(target, isIntersecting);
  drawLater(all);
}, { rootMargin: "100px" });

// figures are painted before a chart is drawn, and one that a newer has replaced is not drawn; a page out of sight has no frames
const frame = () => new Promise((done) => {
  requestAnimationFrame(() => setTimeout(done));
  setTimeout(done, 200);
});

async function drawWaiting() {
  const next = () => [...waiting.keys()].find((one) => all || seen.get(one));
  await null; // who asked knows of it before it ends
  for (let section = next(); section; section = next()) {
    if (!first) await frame();
    const work = waiting.get(section);
    waiting.delete(section);
    try {
      await work?.();
    } catch (error) {
      reportError(error);
    }
  }
  drawing = null;
  first = false;
}

// what draws the chart of a section, when there is time
export function later(section, work) {
  waiting.set(section, work);
  if (seen.has(section)) return;
  const { top, bottom } = section.getBoundingClientRect();
  seen.set(section, bottom > 0 && top < innerHeight);
  sight.observe(section);
}

// a promise of the charts in sight, or of all
export function drawLater(everything) {
  all = everything;
  return (drawing ??= drawWaiting());
}


// paper is light
function isDark() {
  const { theme } = document.documentElement.dataset;
  if (matchMedia("print").matches || theme === "light") return false;
  return theme === "dark" || matchMedia("(prefers-color-scheme: dark)").matches;
}

function recolored(value, dark) {
  if (typeof value === "string") return (dark && boot.dark[value]) || value;
  if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map((item) => recolored(item, dark));
  if (value && typeof value === "object") {
    const out = {};
    for (const [key, item] of Object.entries(value)) out[key] = key === "customdata" || key === "z" ? item : recolored(item, dark);
    return out;
  }
  return value;
}

function heightOf({ layout }, narrow) {
  if (layout.barmode === "stack" && narrow) return HEIGHT + 110;
  return Math.max(HEIGHT, layout.height ?? 0);
}

// stacked parts stand beside their bars in the order of the stack; few lines are named above the chart
function legendOf({ layout }, narrow) {
  if (layout.barmode !== "stack") return { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" };
  return narrow ? { orientation: "h", x: 0, y: -0.35, yanchor: "top" } : layout.legend;
}

function layoutOf(doc, dark) {
  const style = getComputedStyle(document.documentElement);
  const template = recolored(boot.template, dark);
  const { gridcolor: grid } = template.layout.xaxis;
  const { color: ink } = template.layout.font;
  const layout = { ...recolored(doc.figure.layout, dark), template };
  const narrow = matchMedia("(max-width: 560px)").matches;
  return {
    ...layout,
    height: heightOf(doc.figure, narrow),
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: style.getPropertyValue("--font"), size: 12, color: ink },
    hoverlabel: { bgcolor: template.layout.paper_bgcolor, bordercolor: grid, font: { color: ink } },
    legend: { ...legendOf(doc.figure, narrow), font: { size: 11 }, bgcolor: "rgba(0,0,0,0)" },
    margin: { l: 50, b: 40, ...layout.margin, t: layout.annotations?.length ? 24 : 10, ...(narrow ? { l: 40, r: 8 } : {}) },
    dragmode: matchMedia("(pointer: fine)").matches && layout.dragmode ? layout.dragmode : false, // a finger scrolls the page
  };
}

export async function draw(section, doc, onSelect) {
  drawn.set(section, { doc, onSelect });
  const plot = section.querySelector(".plot");
  if (!plot || !window.Plotly) return;
  const dark = isDark();
  const data = recolored(doc.figure.data, dark);
  const stage = section.querySelector("select.stage");
  if (stage && doc.choices.length) {
    const choice = doc.choices.find((one) => one.label === stage.value);
    if (choice) data.forEach((trace, i) => Object.entries(choice.restyle).forEach(([key, values]) => (trace[key] = values[i])));
  }
  const layout = layoutOf(doc, dark);
  plot.style.height = `${layout.height}px`; // what plotly takes when the width changes
  await window.Plotly.react(plot, data, layout, CONFIG);
  if (onSelect && !plot.dataset.bound) {
    plot.dataset.bound = "1";
    plot.on("plotly_click", (event) => {
      const chosen = event.points.map((point) => point.customdata).find((value) => value !== undefined && value !== null);
      if (chosen !== undefined) drawn.get(section)?.onSelect?.(chosen, drawn.get(section).doc);
    });
  }
}

export function redrawAll() {
  for (const [section, { doc, onSelect }] of drawn) {
    const plot = section.isConnected && section.querySelector(".plot");
    if (!plot) continue;
    window.Plotly?.purge(plot); // what is only changed keeps margins of before, and its legend lies over it
    delete plot.dataset.bound;
    draw(section, doc, onSelect);
  }
}

// tables are made when somebody opens them
async function tableOf(name) {
  const query = document.getElementById("answer").dataset.query;
  const response = await fetch(`/page/view?${query}&tables=1`);
  const found = response.ok ? await response.json() : { charts: [] };
  return found.charts.find((chart) => chart.name === name)?.table ?? "";
}

export function show(section, doc, onSelect) {
  section.querySelector("h3").textContent = doc.title;
  section.querySelector(".summary").textContent = doc.summary;
  section.querySelector(".caption").textContent = doc.caption;
  const twin = section.querySelector(".twin");
  const fill = async () => (twin.querySelector(".scroll").innerHTML = doc.table ?? (await tableOf(doc.name)));
  twin.ontoggle = () => twin.open && fill();
  if (twin.open) fill();
  return dress(section, doc, onSelect);
}

// tools and stage choice of a section that the server rendered, then the figure
export function dress(section, doc, onSelect) {
  const tools = section.querySelector(".chart-tools");
  const labels = doc.choices.map((choice) => choice.label);
  if (tools.dataset.stages !== labels.join()) {
    tools.dataset.stages = labels.join();
    tools.replaceChildren();
    if (labels.length) {
      const select = make("select", { class: "stage", "aria-label": `${text("chart_stage")}: ${doc.title}` });
      for (const choice of doc.choices) select.append(new Option(choice.label, choice.label, choice.chosen, choice.chosen));
      select.addEventListener("change", () => draw(section, drawn.get(section).doc, drawn.get(section).onSelect));
      tools.append(select);
    }
    for (const kind of ["png", "svg", "csv"]) {
      const label = text(`chart_${kind}`);
      const button = make("button", {
        type: "button", class: "quiet small", "data-kind": kind, "aria-label": text("chart_download", { title: doc.title, kind: label }),
      }, label);
      button.addEventListener("click", () => download(section, kind));
      tools.append(button);
    }
  } else if (labels.length) {
    const chosen = doc.choices.find((choice) => choice.chosen);
    const select = tools.querySelector("select.stage");
    if (chosen && select && section.dataset.worst !== chosen.label) select.value = chosen.label;
  }
  const chosen = doc.choices.find((choice) => choice.chosen);
  if (chosen) section.dataset.worst = chosen.label;
  return draw(section, doc, onSelect);
}

export function sectionOf(doc) {
  const id = `chart-${doc.name}`;
  return make("section", { class: "chart panel", id, "data-chart": doc.name, "aria-labelledby": `${id}-title` },
    make("div", { class: "chart-head" }, make("h3", { id: `${id}-title` }, doc.title), make("span", { class: "chart-tools" })),
    make("p", { class: "summary" }),
    make("div", { class: "plot", role: "group", "aria-label": text("chart_of", { title: doc.title }) }),
    make("p", { class: "caption muted" }),
    make("details", { class: "twin" }, make("summary", {}, [text("table"), doc.order].filter(Boolean).join(", ")),
      make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `${text("table")}: ${doc.title}` })));
}

// where a spreadsheet would begin a formula, and what is a number: as planner/inputs/tables.py
const FORMULA = /^(?=[\t\r\n]|[\s"']*[=+\-@\uff1d\uff0b\uff0d\uff20]\s*\S)|(?<=[;\t\r\n])(?=["']*[=+\-@\uff1d\uff0b\uff0d\uff20]\s*\S)/g;
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;

export function csv(doc) {
  const plain = { traffic: "B", "%": "share" };
  const quoted = (value) => {
    let cell = value === null ? "" : String(value);
    if (typeof value === "string" && !NUMBER.test(cell)) cell = cell.replace(FORMULA, "'");
    return /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
  };
  const head = doc.columns.map((c) => (["text", "number", "1"].includes(c.unit) ? c.title : `${c.title} (${plain[c.unit] ?? c.unit})`));
  return [head, ...doc.rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
}

async function download(section, kind) {
  const { doc } = drawn.get(section);
  let href;
  if (kind === "csv") href = URL.createObjectURL(new Blob([csv(doc)], { type: "text/csv" }));
  else {
    const plot = section.querySelector(".plot");
    const { paper_bgcolor } = recolored(boot.template, isDark()).layout;
    const figure = { data: plot.data, layout: { ...plot.layout, paper_bgcolor, title: { text: doc.title } }, config: CONFIG };
    href = await window.Plotly.toImage(figure, { format: kind, width: 1200, height: 640, scale: kind === "png" ? 2 : 1 });
  }
  const link = make("a", { href, download: `${doc.name}.${kind}` });
  document.body.append(link);
  link.click();
  link.remove();
  if (kind === "csv") setTimeout(() => URL.revokeObjectURL(href), 1000);
}
