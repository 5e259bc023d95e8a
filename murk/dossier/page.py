"""A dossier as one printable HTML file that loads nothing."""

import html
import re
from importlib.resources import files
from string import Template

from murk.dossier.content import EVIDENCE, Block, Claim, Dossier, Sample
from murk.errors import printable

_SOURCES = {
    "task": "from the task",
    "deployment": "read from the deployment",
    "audit": "measured",
    "example": "made up",
    "organisation": "for you to say",
}


def page_of(dossier: Dossier, inputs: str = "") -> str:
    """Return the page as HTML; ``inputs`` is what `murk dossier --verify` needs to make it again."""
    numbers = {key: at for at, key in enumerate(dossier.evidence, start=1)}
    style = (files("murk.dossier") / "page.css").read_text(encoding="utf-8")
    contents = "".join(f'<li><a href="#{item.key}">{_text(item.title)}</a></li>' for item in dossier.sections)
    summary = "".join(f"<div><dt>{_text(name)}</dt><dd>{_prose(words)}</dd></div>" for name, words in dossier.summary)
    box = '<span class="box" aria-hidden="true"></span>'
    settle = "".join(f"<li>{box}<span>{_prose(item)}</span></li>" for item in dossier.to_settle)
    alarm = '<p class="alarm"><strong>SIMULATED.</strong> Releases to this task protect nobody.</p>'
    sections = ""
    for item in dossier.sections:
        blocks = "\n".join(_block(block, numbers) for block in item.blocks)
        sections += f'<section id="{item.key}"><h2>{_text(item.title)}</h2>\n{blocks}\n</section>\n'
    page = Template((files("murk.dossier") / "page.html").read_text(encoding="utf-8"))
    return page.substitute(
        murk=_text(dossier.murk),
        inputs=inputs,
        title=_text(dossier.title),
        made=_text(dossier.made),
        hash=_text(dossier.task_hash),
        style=style,
        alarm=alarm if dossier.simulated else "",
        summary=summary,
        open=len(dossier.to_settle),
        settle=settle,
        contents=contents,
        evidence=_evidence(numbers),
        sections=sections,
    )


def _block(block: Block, numbers: dict[str, int]) -> str:
    if isinstance(block, Sample):
        kind = "sample made-up" if block.source == "example" else "sample"
        caption, text = _text(block.caption), _text(block.text)
        return f'<figure class="{kind}"><figcaption>{caption}</figcaption><pre>{text}</pre></figure>'
    marks = "".join(f'<a class="mark" href="#e-{key}">{numbers[key]}</a>' for key in block.evidence)
    origin = f'<span class="origin">{_SOURCES[block.source]}</span>' if block.source in _SOURCES else ""
    if isinstance(block, Claim):
        return f"<p>{_prose(block.text)} {marks}{origin}</p>"
    head = "".join(f'<th scope="col">{_text(column)}</th>' for column in block.columns)
    rows = ""
    for first, *others in block.rows:
        named = zip(block.columns[1:], others, strict=True)
        cells = "".join(f'<td data-label="{_text(name)}">{_text(cell)}</td>' for name, cell in named)
        rows += f'<tr><th scope="row">{_text(first)}</th>{cells}</tr>'
    return (
        f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
        f'<p class="marks">{marks}{origin}</p></div>'
    )


def _evidence(numbers: dict[str, int]) -> str:
    rows = "".join(
        f'<li id="e-{key}" value="{at}"><p>{_text(EVIDENCE[key].what)}</p>'
        f"<ul>{''.join(f'<li><code>{_text(test)}</code></li>' for test in EVIDENCE[key].tests)}</ul></li>"
        for key, at in numbers.items()
    )
    return (
        '<section id="evidence"><h2>Evidence</h2><p>Tests of the source code that fail if the sentence is not true. '
        "They run on every change; in a checkout of the source, <code>make test</code> runs them.</p>"
        f"<ol>{rows}</ol></section>"
    )


def _prose(text: str) -> str:
    coded = re.sub(r"`([^`]+)`", r"<code>\1</code>", _text(text))
    # A line may break at hyphens, and an option is one word.
    return re.sub(r"(?<![\w-])(--[a-z]+)", r'<span class="option">\1</span>', coded)


def _text(text: str) -> str:
    return html.escape(printable(str(text)))
