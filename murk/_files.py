"""Files that are written whole or not at all: a full disk or an interruption leaves what was there before."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_place(path: Path) -> None:
    """Refuse a place that nothing can be written at, before the work whose outcome is to go there.

    Raises
    ------
    OSError
        That names the path.
    """
    with _named(path):
        if not _is_special(path):
            with _draft(path):
                pass


def write_whole(path: Path, content: str | bytes, *, new: bool = False) -> None:
    """Write a file beside its place, then put it there in one step.

    Parameters
    ----------
    path
        Its place.
    content
        All that is to be in it; text becomes UTF-8.
    new
        Whether nothing may be there yet.

    Raises
    ------
    FileExistsError
        When something is there that is not to be replaced.
    OSError
        That names the path, when it cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    with _named(path):
        if new:
            # Nobody else gets the name meanwhile.
            path.open("x").close()
        elif _is_special(path):
            path.write_bytes(data)
            return
        try:
            with _draft(path) as draft:
                with draft.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(draft, path.resolve())
        except BaseException:
            if new:
                path.unlink(missing_ok=True)
            raise


def _is_special(path: Path) -> bool:
    """Whether it is a pipe or a device, which nothing is put in the place of."""
    return path.exists() and not (path.is_file() or path.is_dir())


@contextmanager
def _draft(path: Path) -> Iterator[Path]:
    """An empty file beside a path (beside what it links to), with the mode of what is there."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    place = path.resolve()
    draft = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        draft.touch()
        if place.exists():
            shutil.copymode(place, draft)
        yield draft
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors name the path that was asked for."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
