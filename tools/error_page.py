"""The page of error codes and exit statuses, from their registry."""

from __future__ import annotations

from typing import Final

from murk.cli import Status
from murk.error_codes import AREAS, CODES

HEAD: Final = """\
# Errors

Every error is one line: what is wrong, with the value or the place, and what to do; never with a value of a record. It
ends with a code, which stays what it is from version to version, whatever becomes of the words:

    murk: sqlite:///third-child.db carries no task yet: `murk run` or `murk produce` announces one [MURK-LOG-003]

With `--log-json` it is an object, and the code is its `code`. In Python it is the attribute `code` of every
`murk.errors.MurkError`. A release that cannot be learned is no error of anybody who runs Murk: it becomes a dead
letter, and its reasons are [on the wire's page](wire.md#what-a-receiver-refuses).

*This page is written by `make generate` from the registry of codes; a test finds each code where it is raised.*

## Exit statuses

| status | when |
|---|---|
"""

STATUSES: Final = {
    Status.DONE: "done",
    Status.FAULT: "a fault: a log that cannot be reached, a full disk, a damaged state; also `murk topics --check` and "
    "`murk audit` where they found something wrong",
    Status.MISTAKE: "a mistake in what was asked: an option, a task, a file, a setting",
    Status.STOPPED: "stopped, by Ctrl-C or SIGTERM; the same command goes on where it stood. `murk learn` and `murk "
    "monitor`, which run until they are stopped, end with 0",
}


def page() -> str:
    """Return the page's text."""
    lines = [HEAD + "\n".join(f"| {int(status)} | {words} |" for status, words in STATUSES.items()), "", "## Codes", ""]
    for area, words in AREAS.items():
        lines += [f"### {area}: {words}", "", "| code | what has happened | what to do |", "|---|---|---|"]
        lines += [f"| `{one.code}` | {one.what} | {one.remedy} |" for one in CODES.values() if one.area == area]
        lines.append("")
    return "\n".join(lines)
