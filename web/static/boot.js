// What the server wrote into the page: texts, limits, the state, the first charts.
const element = document.getElementById("boot");

export const boot = element ? JSON.parse(element.textContent) : { texts: {}, dark: {}, charts: [] };

export function text(key, values = {}) {
  let out = boot.texts[key] ?? key;
  for (const [name, value] of Object.entries(values)) out = out.replace(`{${name}}`, value);
  return out;
}

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

export function stored(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function store(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // private windows may refuse; nothing is lost but the convenience
  }
}
