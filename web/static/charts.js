// Charts as the server has drawn them: their tables and files, and a large view, for which plotly is loaded.
import { boot, make, text } from "./boot.js";

const CONFIG = { displaylogo: false, displayModeBar: false, showSendToCloud: false, plotlyServerURL: "", responsive: true };
const NS = "http://www.w3.org/2000/svg";
const EDGE = 16; // around a chart in a file
const sources = new Map(); // sections: a promise of the chart with its numbers

// the chart of a section is replaced by a newer; whole: what gives its numbers
export function show(section, doc, whole) {
  section.querySelector("h3").textContent = doc.title;
  section.querySelector(".summary").textContent = doc.summary;
  section.querySelector(".caption").textContent = doc.caption;
  section.querySelector(".plot").innerHTML = doc.drawn;
  const twin = section.querySelector(".twin");
  const fill = async () => (twin.querySelector(".scroll").innerHTML = doc.table ?? (await whole())?.table ?? "");
  twin.ontoggle = () => twin.open && fill();
  if (twin.open) fill();
  dress(section, whole);
}

// the buttons of a chart
export function dress(section, whole) {
  sources.set(section, whole);
  const tools = section.querySelector(".chart-tools");
  if (!tools || tools.children.length) return;
  const title = section.querySelector("h2, h3").textContent;
  const button = (key, label, work) => {
    const button = make("button", { type: "button", class: "quiet small", "data-kind": key, "aria-label": label }, text(`chart_${key}`));
    button.addEventListener("click", work);
    tools.append(button);
  };
  button("large", text("chart_open", { title }), () => large(section));
  for (const kind of ["png", "svg", "csv"]) {
    button(kind, text("chart_download", { title, kind: text(`chart_${kind}`) }), () => download(section, kind));
  }
}

// the charts that a page came with
export function dressAll(docs) {
  for (const doc of docs) {
    const section = document.getElementById(`chart-${doc.name}`);
    if (section) dress(section, async () => doc);
  }
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

// ------------------------------------------------------------------------------------------------ large

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

let loading = null;

function plotly() {
  loading ??= new Promise((done, failed) => {
    const script = make("script", { src: document.body.dataset.plotly });
    script.addEventListener("load", () => done(window.Plotly));
    script.addEventListener("error", failed);
    document.head.append(script);
  });
  return loading;
}

function layoutOf(doc, dark, height) {
  const style = getComputedStyle(document.documentElement);
  const template = recolored(boot.template, dark);
  const { gridcolor: grid } = template.layout.xaxis;
  const { color: ink } = template.layout.font;
  const { height: ownHeight, ...layout } = recolored(doc.figure.layout, dark);
  return {
    ...layout,
    template,
    height: Math.max(height, ownHeight ?? 0),
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: style.getPropertyValue("--font"), size: 13, color: ink },
    hoverlabel: { bgcolor: template.layout.paper_bgcolor, bordercolor: grid, font: { color: ink } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" },
    margin: { l: 60, r: 20, b: 50, t: 60 },
  };
}

function chosen(data, doc, label) {
  const choice = doc.choices.find((entry) => entry.label === label);
  return choice ? data.map((trace, i) => ({ ...trace, ...Object.fromEntries(Object.entries(choice.restyle).map(([key, values]) => [key, values[i]])) })) : data;
}

async function large(section) {
  const box = make("dialog", { class: "drawer-box large", "aria-label": section.querySelector("h2, h3").textContent });
  const close = make("button", { type: "button", class: "quiet" }, text("close"));
  const plot = make("div", { class: "large-plot" }, make("p", { class: "muted" }, text("chart_wait")));
  const tools = make("span", { class: "chart-tools" });
  close.addEventListener("click", () => box.close());
  box.addEventListener("click", (event) => event.target === box && box.close());
  box.addEventListener("close", () => box.remove());
  box.append(make("div", { class: "drawer-head" }, make("h2", {}, box.getAttribute("aria-label")), tools, close), plot);
  document.body.append(box);
  box.showModal();
  let doc, Plotly;
  try {
    [doc, Plotly] = await Promise.all([sources.get(section)(), plotly()]);
  } catch {
    plot.replaceChildren(make("p", { class: "problem", role: "alert" }, text("offline")));
    return;
  }
  const dark = isDark();
  const height = Math.round(innerHeight * 0.72);
  const draw = (label) => Plotly.react(plot, chosen(recolored(doc.figure.data, dark), doc, label), layoutOf(doc, dark, height), CONFIG);
  plot.replaceChildren();
  if (doc.choices.length) {
    const select = make("select", { class: "stage", "aria-label": `${text("chart_stage")}: ${doc.title}` });
    for (const choice of doc.choices) select.append(new Option(choice.label, choice.label, choice.chosen, choice.chosen));
    select.addEventListener("change", () => draw(select.value));
    tools.append(select);
  }
  await draw();
  plot.dataset.drawn = doc.name;
}

// ------------------------------------------------------------------------------------------------ files

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

// the drawing with what the sheet of the page says of it, on white
function pictured(section) {
  const svg = section.querySelector(".plot svg").cloneNode(true);
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const put = (name, attributes) => {
    const node = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    svg.prepend(node);
    return node;
  };
  const box = { x: -EDGE, y: -EDGE, width: width + 2 * EDGE, height: height + 2 * EDGE };
  svg.setAttribute("viewBox", Object.values(box).join(" "));
  svg.setAttribute("width", box.width);
  svg.setAttribute("height", box.height);
  put("rect", { ...box, fill: "#ffffff" });
  put("style", {}).textContent = "svg{color-scheme:light} text{font:12px Liberation Sans,Arial,sans-serif;fill:#222}";
  for (const link of svg.querySelectorAll("a")) link.replaceWith(...link.childNodes);
  return { text: new XMLSerializer().serializeToString(svg), ...box };
}

async function painted({ text: markup, width, height }) {
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([markup], { type: "image/svg+xml" }));
  await image.decode();
  const canvas = make("canvas", { width: 2 * width, height: 2 * height });
  canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
  URL.revokeObjectURL(image.src);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

async function download(section, kind) {
  let blob;
  if (kind === "csv") blob = new Blob([csv(await sources.get(section)())], { type: "text/csv" });
  else if (kind === "svg") blob = new Blob([pictured(section).text], { type: "image/svg+xml" });
  else blob = await painted(pictured(section));
  const link = make("a", { href: URL.createObjectURL(blob), download: `${section.dataset.chart}.${kind}` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
