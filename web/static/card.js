// A picture of the answer as SVG or PNG, drawn here from what the page shows; its state is inside.
import { boot, make, text } from "./boot.js";

const [WIDTH, HEIGHT, EDGE] = [1200, 630, 56];
const COLORS = { yes: "#0f6b31", maybe: "#704400", no: "#a31f2f" };
const NS = "http://www.w3.org/2000/svg";

function lines(words, most) {
  const out = [""];
  for (const word of words.split(" ")) {
    if (out[out.length - 1].length + word.length > most) out.push("");
    out[out.length - 1] += `${out[out.length - 1] ? " " : ""}${word}`;
  }
  return out;
}

export function drawn(query) {
  const svg = document.createElementNS(NS, "svg");
  for (const [name, value] of Object.entries({ xmlns: NS, width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "font-family": "Liberation Sans, Arial, sans-serif", "data-dpplan-state": query })) svg.setAttribute(name, value);
  const put = (tag, attributes, words) => {
    const node = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (words) node.textContent = words;
    svg.append(node);
  };
  const write = (x, y, size, fill, words, weight = 400) => put("text", { x, y, "font-size": size, fill, "font-weight": weight }, words);
  const shown = (selector) => document.querySelector(`#answer ${selector}`)?.textContent.trim().replace(/\s+/g, " ") ?? "";
  const mark = ["yes", "maybe", "no"].find((name) => document.querySelector("#answer .verdict").classList.contains(name));
  put("rect", { width: WIDTH, height: HEIGHT, fill: "#ffffff" });
  put("rect", { width: WIDTH, height: 14, fill: COLORS[mark] });
  write(EDGE, 84, Math.min(38, Math.floor(1900 / shown("h1").length)), "#1c2026", shown("h1"), 700); // a long title stays inside
  write(EDGE, 132, 28, COLORS[mark], shown(".badge strong"), 700);
  write(EDGE, 166, 20, "#565d68", shown(".badge > span"));
  [...document.querySelectorAll("#answer .card")].slice(0, 8).forEach((card, i) => {
    const [x, y] = [EDGE + (i % 4) * 272, 232 + Math.floor(i / 4) * 128];
    const content = (selector) => card.querySelector(selector)?.textContent.trim().replace(/\s+/g, " ") ?? "";
    write(x, y, 18, "#565d68", content(".label"));
    write(x, y + 38, 27, "#1c2026", content("data"), 700);
    write(x, y + 62, 14, "#565d68", content(".range"));
  });
  lines(`${text("layout")}: ${shown("#layout-text")}`, 110).slice(0, 2).forEach((line, i) => write(EDGE, 502 + i * 26, 19, "#1c2026", line));
  lines(shown(".basis").split(". ")[0], 120).slice(0, 2).forEach((line, i) => write(EDGE, 556 + i * 22, 15, "#565d68", line));
  write(EDGE, HEIGHT - 22, 15, "#565d68", `dpplan ${boot.version}, ${new Date().toISOString().slice(0, 10)}`);
  return new XMLSerializer().serializeToString(svg);
}

export async function saved(kind, query) {
  const svg = drawn(query);
  let blob = new Blob([svg], { type: "image/svg+xml" });
  if (kind === "png") {
    const image = new Image();
    image.src = URL.createObjectURL(blob);
    await image.decode();
    const canvas = make("canvas", { width: 2 * WIDTH, height: 2 * HEIGHT });
    canvas.getContext("2d").drawImage(image, 0, 0, 2 * WIDTH, 2 * HEIGHT);
    URL.revokeObjectURL(image.src);
    blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  }
  const link = make("a", { href: URL.createObjectURL(blob), download: `dpplan.${kind}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
