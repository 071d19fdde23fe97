// What every page does: the theme.
import { text } from "./boot.js";

const root = document.documentElement;
const ORDER = ["auto", "light", "dark"];

// the sentence of a field under the pointer, which is there once for all who read it
function explained() {
  document.addEventListener("pointerover", (event) => {
    const field = event.target.closest?.(".field:not([title])");
    const hint = field?.querySelector(".hint");
    if (hint) field.title = hint.textContent;
  });
}

export function themed() {
  explained();
  if (root.classList.contains("embed")) { // what is chosen there opens the whole page
    document.head.append(Object.assign(document.createElement("base"), { target: "_blank" }));
    const whole = new URL(location.href);
    whole.searchParams.delete("embed");
    document.querySelector(".whole a").href = whole;
  }
  const button = document.getElementById("theme");
  const named = () => (button.querySelector("span").textContent = text(`theme_${root.dataset.theme ?? "auto"}`));
  button.addEventListener("click", () => {
    const next = ORDER[(ORDER.indexOf(root.dataset.theme ?? "auto") + 1) % ORDER.length];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      localStorage.setItem("dpplan-theme", next);
    } catch {
      // only this page then
    }
    named();
  });
  if (button.dataset.named !== "no") named();
}
