// Polls the monitor once a second, and reports when it does not answer.

import { byId, setText } from "./dom.js";
import { timeOf } from "./format.js";

const EVERY = 1000;
const LONGEST_WAIT = 15000;
const PATIENCE = 10000;
const VERSION = 1;

const state = { failures: 0, read: null, timer: 0, asking: false, path: "", show: null };

// Shows each answer of a path.
export function follow(path, show) {
  state.path = path;
  state.show = show;
  byId("status-retry").addEventListener("click", poll);
  // Browsers slow the timers of hidden pages.
  document.addEventListener("visibilitychange", () => document.hidden || poll());
  poll();
}

// What is shown turns pale where it is old.
export function setState(name, text, detail, old = name === "lost" || name === "sick") {
  const strip = byId("status");
  strip.dataset.state = name;
  document.body.classList.toggle("old", old);
  setText(byId("status-text"), text);
  setText(byId("status-detail"), detail);
  byId("status-retry").hidden = name !== "lost";
}

async function ask() {
  const answer = await fetch(state.path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (!answer.ok) throw new Error(`the monitor answered ${answer.status}`);
  return answer.json();
}

async function poll() {
  if (state.asking) return;
  clearTimeout(state.timer);
  state.asking = true;
  let status = null;
  try {
    status = await ask();
    state.failures = 0;
  } catch {
    // Whatever the error, the figures are old; `showLost` says so.
    state.failures += 1;
  }
  state.asking = false;
  const wait = state.failures ? Math.min(EVERY * 2 ** (state.failures - 1), LONGEST_WAIT) : EVERY;
  state.timer = setTimeout(poll, wait);
  if (status) showOrSay(status);
  else showLost(wait);
}

function showOrSay(status) {
  if (status.version !== VERSION) {
    setState("sick", "This page does not fit the monitor", "The monitor was updated. Load the page again.");
    return;
  }
  try {
    state.show(status);
    state.read = status.now;
  } catch (error) {
    console.error(error);
    setState("sick", "The monitor's answer cannot be shown", "What is shown may be old. Load the page again.");
  }
}

function showLost(wait) {
  const seen = state.read === null ? "No figures yet." : `What is shown is from ${timeOf(state.read)}.`;
  setState("lost", "The monitor cannot be reached", `${seen} Trying again in ${Math.round(wait / 1000)} s.`);
}
