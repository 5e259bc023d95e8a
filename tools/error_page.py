"""The page of error codes and exit statuses, from their registry."""

from __future__ import annotations

from typing import Final

from murk.cli import Status
from murk.error_codes import AREAS, CODES

HEAD: Final = """\
# Errors

An error is one line: what is wrong, with the value or the place, then what to do. It never quotes a record. It ends
with a code, which is the same in every version:

    murk: sqlite:///third-child.db carries no task yet: `murk run` or `murk produce` announces one [MURK-LOG-003]

With `--log-json` the code is the key `code`; in Python it is the attribute `code` of every `murk.errors.MurkError`. A
release that cannot be learned raises no error; it becomes a dead letter with [a
reason](wire.md#what-a-receiver-refuses).

*`make generate` writes this page from the registry of codes.*

## Exit statuses

| status | when |
|---|---|
"""

STATUSES: Final = {
    Status.DONE: "done",
    Status.FAULT: "a fault: an unreachable log, a full disk, a damaged state; also a finding of `murk topics --check` "
    "or `murk audit`",
    Status.MISTAKE: "a mistake in an option, a task, a file or a setting",
    Status.STOPPED: "stopped by Ctrl-C or SIGTERM; the same command resumes. `murk learn` and `murk monitor`, which "
    "run until stopped, end with 0",
}


def page() -> str:
    """Return the page's text."""
    lines = [HEAD + "\n".join(f"| {int(status)} | {words} |" for status, words in STATUSES.items()), "", "## Codes", ""]
    for area, words in AREAS.items():
        lines += [f"### {area}: {words}", "", "| code | what has happened | what to do |", "|---|---|---|"]
        lines += [f"| `{one.code}` | {one.what} | {one.remedy} |" for one in CODES.values() if one.area == area]
        lines.append("")
    return "\n".join(lines)
