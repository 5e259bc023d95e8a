// The list of tasks.

import { byId, element, fillRows, setText } from "./dom.js";
import { count, rate, significant, timeOf } from "./format.js";
import { follow, setState } from "./poll.js";

function show({ now, tasks, problems }) {
  const measured = tasks.some((task) => task.parameter_error !== null);
  byId("error-column").hidden = !measured;
  fillRows(byId("tasks"), tasks.map((task) => cells(task, measured)));
  const said = problems.map(({ log, problem }) => `${log}: ${problem}`);
  byId("problems").replaceChildren(...said.map((text) => element("li", "", text)));
  const sick = tasks.filter((task) => !task.healthy).length + problems.length;
  if (sick) setState("sick", "Some logs cannot be read", "Other tasks are not affected.", false);
  else setState("live", "Live", `updated ${timeOf(now)}`);
}

function cells(task, measured) {
  const error = { text: significant(task.parameter_error, 3), kind: "n", label: "Error" };
  return [
    { text: task.name, head: true, link: `tasks/${encodeURIComponent(task.name)}/` },
    { text: task.simulated ? `${task.protocol}, simulated` : task.protocol, label: "Protocol" },
    { text: count(task.releases), kind: "n", label: "Releases" },
    { text: rate(task.rate), kind: "n", label: "Per second" },
    ...(measured ? [error] : []),
    { text: significant(task.estimated_error, 3), kind: "n", label: "Estimated error" },
    { text: count(task.lag), kind: "n", label: "Lag" },
    { text: count(task.dead_letters), kind: "n", label: "Dead letters" },
    { text: task.problem ?? "can be read", kind: task.problem ? "owner alarm" : "owner", label: "Log" },
  ];
}

follow("api/tasks", show);
