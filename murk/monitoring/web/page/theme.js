// Reads the plots' colours from the style sheet, which defines dark and light.

const NAMES = ["ink", "soft", "line", "grid", "surface", "accent", "band", "area", "truth"];
const colours = {};
const listeners = new Set();

function read() {
  const style = getComputedStyle(document.documentElement);
  for (const name of NAMES) colours[name] = style.getPropertyValue(`--${name}`).trim();
}

export function colour(name) {
  if (!colours.ink) read();
  return colours[name];
}

export function onThemeChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

for (const query of ["(prefers-color-scheme: dark)", "(prefers-contrast: more)"]) {
  matchMedia(query).addEventListener("change", () => {
    read();
    for (const listener of listeners) listener();
  });
}
