// The drawer: explanations and exports over the page, from the same addresses that are pages of their own.
import { make, text } from "./boot.js";

const box = document.getElementById("drawer");
const body = document.getElementById("drawer-body");
const title = document.getElementById("drawer-title");

document.getElementById("drawer-close").addEventListener("click", () => box.close());
box.addEventListener("click", (event) => event.target === box && box.close());

export async function open(address, heading, part) {
  title.textContent = heading;
  body.replaceChildren(make("p", { class: "muted" }, text("chart_wait")));
  if (!box.open) box.showModal();
  const url = new URL(address, location.href);
  url.hash = "";
  url.searchParams.set("bare", "1");
  try {
    const response = await fetch(url);
    const page = await response.text();
    if (!response.ok) throw new Error(page);
    body.innerHTML = page;
  } catch {
    body.replaceChildren(make("p", { class: "problem", role: "alert" }, text("error")));
    return;
  }
  for (const section of body.querySelectorAll("[data-part]")) section.hidden = Boolean(part) && section.dataset.part !== part;
  for (const block of body.querySelectorAll("pre.command")) {
    const button = make("button", { type: "button", class: "quiet small" }, text("copy"));
    button.addEventListener("click", async () => {
      await navigator.clipboard?.writeText(block.textContent);
      button.textContent = text("copied");
    });
    block.after(button);
  }
  body.focus();
}
