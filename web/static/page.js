// What every page does: the theme.
import { text } from "./boot.js";

const root = document.documentElement;
const ORDER = ["auto", "light", "dark"];

export function themed() {
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
