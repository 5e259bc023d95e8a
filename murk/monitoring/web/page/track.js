// Estimates by window, and the smoothed path with its band: a plot for each of the first coefficients.

import { byId, element, setText } from "./dom.js";
import { plusMinus, significant } from "./format.js";
import { makePlot, niceRange } from "./plot.js";

const MOST = 6;
const cards = new Map();

function makeCard(name) {
  const card = byId("track-cards").appendChild(element("div", "card"));
  const head = card.appendChild(element("div", "card-head"));
  const title = head.appendChild(element("p", "key", name));
  const reading = head.appendChild(element("span", "at"));
  let data = [[], [], [], [], []];
  let begins = [];

  function read(index) {
    const at = index !== null && index < begins.length ? index : begins.length - 1;
    if (at < 0) return "nothing yet";
    const [value, low, alone] = [data[1][at], data[2][at], data[4][at]];
    const own = alone === null ? "" : `, alone ${significant(alone)}`;
    const text = `${begins[at]}: ${value === null ? "not learned" : plusMinus(value, value - low)}${own}`;
    setText(reading, text);
    return text;
  }
  const plot = makePlot(card.appendChild(element("div")), {
    x: "time", y: "linear", height: 168, bands: [[3, 2]],
    series: [{ colour: "accent", width: 2, dot: true }, {}, {}, { colour: "soft", width: 1, dash: [3, 4] }],
    range: (lists) => {
      const seen = lists.slice(1).flat().filter((value) => value !== null);
      return seen.length ? niceRange(Math.min(...seen), Math.max(...seen)) : [0, 1];
    },
    label: () => `${name}: ${read(null)}. Arrow keys read the windows.`, readout: read,
  });
  return {
    card, plot,
    update(track, of) {
      begins = track.begins;
      setText(title, of.unit ?? name);
      const end = (sign) => of.path.values.map((value, i) => (value === null || of.path.half_widths[i] === null ? null : value + sign * of.path.half_widths[i]));
      data = [begins.map((day) => Date.parse(day) / 1000), of.path.values, end(-1), end(1), of.windows.values];
      plot.update(data);
      read(null);
    },
  };
}

export function updateTrack({ estimate: { track } }) {
  byId("track").hidden = !track;
  if (!track) return;
  setText(byId("track-words"), `The line is the smoothed path with its band, the dashes are the windows alone. ${track.words}`);
  const shown = Object.entries(track.coefficients).slice(0, MOST);
  for (const [name, of] of shown) {
    if (!cards.has(name)) cards.set(name, makeCard(name));
    cards.get(name).update(track, of);
  }
}
