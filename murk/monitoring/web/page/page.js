// The page of one task.

import { updateBlocks } from "./blocks.js";
import { makeCurves } from "./curves.js";
import { byId } from "./dom.js";
import { startEstimates, updateEstimates } from "./estimates.js";
import { updateExperiment } from "./experiment.js";
import { timeOf } from "./format.js";
import { follow, setState } from "./poll.js";
import { updateTrack } from "./track.js";

let drawCurves = null;

function show(status) {
  if (status.tasks) {
    // There were fewer tasks when this page was loaded; now its address has the list.
    location.reload();
    return;
  }
  updateBlocks(status);
  updateExperiment(status);
  updateEstimates(status);
  updateTrack(status);
  drawCurves(status);
  if (status.healthy) setState("live", "Live", `updated ${timeOf(status.now)}`);
  else setState("sick", "The log cannot be read", `${status.problem ?? "no reason given"}. What is shown was read before.`);
}

function start() {
  drawCurves = makeCurves();
  startEstimates();
  for (const id of ["all-tasks", "several"]) byId(id).hidden = !location.pathname.includes("/tasks/");
  follow("api/status", show);
}

start();
