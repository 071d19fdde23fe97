// Before the first paint: the theme that was chosen, and that there is a script.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  root.classList.toggle("embed", /[?&]embed=1(&|$)/.test(location.search)); // in a frame of another page
  try {
    const chosen = localStorage.getItem("dpplan-theme");
    if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  } catch {
    // storage is switched off: the theme of the system
  }
})();
