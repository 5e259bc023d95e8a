"""Runbook pages of the monitor, ``/runbook/NAME`` for each alert, from ``docs/recover.md``."""

import re
from collections.abc import Mapping
from email.message import Message
from functools import partial
from html import escape
from pathlib import Path

from murk.monitoring.metrics.alerts import ALERTS, RUNBOOK, Alert
from murk.monitoring.web.server import Response, Route

_PACKAGED = Path(__file__).with_name("recover.md")
_SOURCE = Path(__file__).parents[2] / "docs" / "recover.md"
_INLINE = (
    (re.compile(r"`([^`]+)`"), r"<code>\1</code>"),
    (re.compile(r"\*\*([^*]+)\*\*"), r"<strong>\1</strong>"),
    (re.compile(r"\*([^*]+)\*"), r"<em>\1</em>"),
)
_LINK = re.compile(r"\[([^]]+)\]\(([^)#]*)#?([^)]*)\)")
_PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>{title}: Murk runbook</title>
  <link rel="icon" href="../icon.svg" type="image/svg+xml">
  <link rel="stylesheet" href="../page.css">
</head>
<body>
  <header class="masthead"><div>
    <p class="brand"><a href="../">Murk monitor</a>: runbook</p>
    <h1>{title}</h1>
  </div></header>
  <main class="runbook">
{body}
  </main>
</body>
</html>
"""


def runbook_routes() -> dict[str, Route]:
    """Return the page of every alert, and their list at ``/runbook/``."""
    texts = sections((_PACKAGED if _PACKAGED.is_file() else _SOURCE).read_text(encoding="utf-8"))
    pages = {alert.name: _alert(alert, texts) for alert in ALERTS}
    items = [f'<li><a href="{alert.name}">{alert.name}</a> ({alert.severity})</li>' for alert in ALERTS]
    pages[""] = _PAGE.format(title="Alerts", body=f"<ul>{''.join(items)}</ul>")
    return {f"{RUNBOOK}/{name}": partial(_page, page.encode()) for name, page in pages.items()}


def sections(text: str) -> dict[str, str]:
    """Return the sections of a Markdown document by the anchor of their heading.

    Examples
    --------
    >>> sections("# Top\\n## The disk is full\\nFree some.\\n")
    {'top': '', 'the-disk-is-full': 'Free some.'}
    """
    _, *parts = re.split(r"^#+ (.+)\n", text, flags=re.M)
    return {
        re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-"): body.strip()
        for heading, body in zip(parts[::2], parts[1::2], strict=True)
    }


def html(text: str) -> str:
    """Convert paragraphs, numbered lists, code, emphasis and links between alerts to HTML; drop other links.

    Examples
    --------
    >>> html("Is *it* up? Ask `/healthz`.")
    '<p>Is <em>it</em> up? Ask <code>/healthz</code>.</p>'
    """
    pages = {alert.anchor: alert.name for alert in ALERTS}

    def link(found: re.Match[str]) -> str:
        words, page, anchor = found.groups()
        return f'<a href="{pages[anchor]}">{words}</a>' if not page and anchor in pages else words

    blocks = []
    for block in text.split("\n\n"):
        words = _LINK.sub(link, escape(block, quote=False))
        for pattern, replacement in _INLINE:
            words = pattern.sub(replacement, words)
        items = re.split(r"^\d+\. ", words, flags=re.M)
        listed = "".join(f"<li>{item.strip()}</li>" for item in items[1:])
        blocks.append(f"<ol>{listed}</ol>" if listed else f"<p>{words}</p>")
    return "\n".join(blocks)


def _alert(alert: Alert, texts: Mapping[str, str]) -> str:
    body = f"""<p class="note">{alert.severity}; raised when this has held for {alert.wait}:</p>
<pre class="card"><code>{escape(alert.expr)}</code></pre>
{html(texts[alert.anchor])}"""
    return _PAGE.format(title=alert.name, body=body)


def _page(page: bytes, headers: Message) -> Response:
    return Response(200, "text/html; charset=utf-8", page)
