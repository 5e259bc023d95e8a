"""Errors for optional packages that are missing, with the command that installs them."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from murk.errors import UserError

_PACKAGE = Path(__file__).parents[1]


def missing_extra(what: str, extra: str) -> UserError:
    """Return the error for a missing optional package: ``what`` says what needs it, ``extra`` brings it."""
    return UserError(f"{what}: {install_command(extra)}", code="MURK-CLI-003")


def install_command(extra: str) -> str:
    """Return the command that installs an extra from where Murk was installed: a checkout, a file or an index."""
    try:
        murk = distribution("murk")
    except PackageNotFoundError:
        return _from_checkout(extra)
    # Pip writes this file for everything but an index.
    text = murk.read_text("direct_url.json")
    if text is None:
        ours = Path(str(murk.locate_file("murk"))).resolve() == _PACKAGE.resolve()
        return f'pip install "murk[{extra}]"' if ours else _from_checkout(extra)
    origin = json.loads(text)
    if "dir_info" in origin:
        folder = url2pathname(urlsplit(origin["url"]).path)
        return f'pip install {"--editable " if origin["dir_info"].get("editable") else ""}"{folder}[{extra}]"'
    repository = origin.get("vcs_info")
    url = f"{repository['vcs']}+{origin['url']}@{repository['commit_id']}" if repository else origin["url"]
    return f'pip install "murk[{extra}] @ {url}"'


def _from_checkout(extra: str) -> str:
    return f'pip install "{_PACKAGE.parent}[{extra}]"'
