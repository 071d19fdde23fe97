// The bar of tabs: the one shown in sight, and the address as it is now carried over to the next.
const bar = document.querySelector(".tabs");
const here = bar?.querySelector("[aria-current]");
if (here) bar.scrollLeft = here.offsetLeft - (bar.clientWidth - here.offsetWidth) / 2;

function carried(link) {
  const names = link.dataset.carries.split(" ");
  const now = new URLSearchParams(location.search);
  const kept = new URLSearchParams();
  for (const [name, value] of now) if (value && names.includes(name)) kept.append(name, value);
  return [...kept].length ? `${link.dataset.path}?${kept}` : link.dataset.path;
}

// the page before may have changed its address without asking the server; without one, its links hold
for (const event of ["pointerdown", "focusin", "click"]) {
  bar?.addEventListener(event, ({ target }) => {
    const link = target.closest("a");
    if (link && location.search) link.href = carried(link);
  });
}
