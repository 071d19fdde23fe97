// A form with files: dropped anywhere on the page they are read at once, and stay chosen while options change.
import { boot, make, text } from "./boot.js";

const form = () => document.querySelector(".tab-form");
const chosen = () => document.getElementById("f-files");

function said(sentence) {
  form().querySelector(".problem")?.remove();
  if (sentence) form().prepend(make("p", { role: "alert", class: "problem" }, sentence));
}

function kept(now, next, name) {
  const [old, fresh] = [now, next].map((one) => one.querySelector(`[name=${name}]`));
  if (old && fresh) fresh.replaceWith(old);
}

async function send() {
  const now = form();
  const size = [...chosen().files].reduce((sum, file) => sum + file.size, 0);
  if (size > boot.limits.upload) {
    said(text("upload_large", { most: boot.limits.upload.toLocaleString("en") }));
    return;
  }
  now.setAttribute("aria-busy", "true");
  document.getElementById("found").replaceChildren(make("p", { class: "muted", role: "status" }, text("upload_working")));
  try {
    const response = await fetch(now.action, { method: "POST", body: new FormData(now) });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const next = page.querySelector(".tab-form");
    if (next) {
      for (const name of ["files", "text"]) kept(now, next, name);
      now.replaceWith(document.adoptNode(next));
    }
    const tabs = page.querySelector(".tabs"); // whose links hold what the files say
    if (tabs) {
      document.querySelector(".tabs").replaceChildren(...tabs.childNodes);
      history.replaceState(null, "", document.querySelector(".tabs [aria-current]").href);
    }
    const found = page.querySelector("#found");
    document.getElementById("found").replaceChildren(...(found ?? page.querySelector("#main")).childNodes);
  } catch {
    said(text("offline"));
  } finally {
    form().removeAttribute("aria-busy");
  }
  document.getElementById("found").focus();
}

document.addEventListener("submit", (event) => {
  if (event.target !== form()) return;
  event.preventDefault();
  send();
});

for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    if (![...(event.dataTransfer?.types ?? [])].includes("Files")) return;
    event.preventDefault();
    form().querySelector(".drop").classList.toggle("over", kind === "dragover");
    if (kind !== "drop") return;
    chosen().files = event.dataTransfer.files;
    send();
  });
}
document.addEventListener("change", (event) => {
  if (event.target === chosen() && chosen().files.length) send();
});
