"""Mistakes that change nothing that can be seen, by file and changed lines, and why."""

EQUIVALENT: dict[tuple[str, str], str] = {}
