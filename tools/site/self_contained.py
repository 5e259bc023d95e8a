"""No page may load anything from another host, or a file that the site does not have."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.typing import ExtensionMetadata

LOG = logging.getLogger(__name__)

# What a browser fetches by itself. A link that a reader follows may lead anywhere.
_SOURCES = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "object": "data",
    "script": "src",
    "source": "src",
    "use": "href",
    "video": "src",
}
_LINKS = {
    "dns-prefetch",
    "icon",
    "manifest",
    "mask-icon",
    "modulepreload",
    "preconnect",
    "prefetch",
    "preload",
    "stylesheet",
}


class _Loads(HTMLParser):
    """Collects the addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element loads."""
        have = {name: value or "" for name, value in attrs}
        if tag == "link" and _LINKS & set(have.get("rel", "").split()):
            self.addresses.append(have.get("href", ""))
        elif tag in _SOURCES:
            self.addresses.append(have.get(_SOURCES[tag], ""))


def missing(site: Path) -> Iterator[tuple[str, str]]:
    """Yield (file, address) of everything that pages and style sheets load and the site does not hold."""
    for page in sorted(site.rglob("*.html")):
        loads = _Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        yield from ((str(page.relative_to(site)), one) for one in loads.addresses if not _held(page, one))
    for sheet in sorted(site.rglob("*.css")):
        text = sheet.read_text(encoding="utf-8").replace("@import ", "@import url(")
        addresses = [rest.split(")")[0].split(";")[0].strip("'\" ") for rest in text.split("url(")[1:]]
        yield from ((str(sheet.relative_to(site)), one) for one in addresses if not _held(sheet, one))


def _held(file: Path, address: str) -> bool:
    parts = urlsplit(address)
    if parts.scheme == "data" or not (parts.scheme or parts.netloc or parts.path):
        return True  # It carries its own bytes, or is a part of the page itself.
    return not parts.scheme and not parts.netloc and (file.parent / unquote(parts.path)).is_file()


def check(app: Sphinx, exception: Exception | None) -> None:
    """Warn of each after the build; ``make docs`` makes a warning an error."""
    if exception is None and app.builder.format == "html":
        for page, address in missing(Path(app.outdir)):
            LOG.warning("%s loads %s, which the site does not hold", page, address)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Check what was built."""
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
