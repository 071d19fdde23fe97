// A lesson whose numbers follow its inputs: the page of the new inputs is fetched, and what it
// marks as live takes the place of what stands here.

const form = document.getElementById("lesson-form");
const WAIT_MS = 10;
let timer = 0;
let busy = false;
let again = false;

const fieldOf = (slider) => document.getElementById(slider.dataset.for);

function place(slider) {
  const field = fieldOf(slider);
  if (field.tagName === "SELECT") {
    slider.value = field.selectedIndex;
    return;
  }
  const [low, high, value] = [Number(field.min), Number(field.max), Number(field.value)];
  const share = "log" in slider.dataset ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  slider.value = Math.round(share * Number(slider.max));
}

function move(slider) {
  const field = fieldOf(slider);
  if (field.tagName === "SELECT") {
    field.selectedIndex = Number(slider.value);
    return;
  }
  const [low, high, share] = [Number(field.min), Number(field.max), Number(slider.value) / Number(slider.max)];
  const value = "log" in slider.dataset ? low * (high / low) ** share : low + (high - low) * share;
  field.value = Math.min(high, Math.max(low, Number(value.toPrecision(3))));
}

async function update() {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  const address = `${location.pathname}?${new URLSearchParams(new FormData(form))}`;
  try {
    const answer = await fetch(address);
    if (answer.ok) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const old of document.querySelectorAll("[data-live]")) {
        const fresh = page.getElementById(old.id);
        if (fresh && fresh.innerHTML !== old.innerHTML) old.innerHTML = fresh.innerHTML;
      }
      history.replaceState(null, "", address);
    }
  } finally {
    busy = false;
    if (again) {
      again = false;
      update();
    }
  }
}

form.querySelectorAll('input[type="range"]').forEach(place);
form.addEventListener("input", (event) => {
  if (event.target.type === "range") move(event.target);
  else form.querySelectorAll('input[type="range"]').forEach(place);
  clearTimeout(timer);
  timer = setTimeout(update, WAIT_MS);
});
