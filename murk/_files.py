"""Files that are written whole or not at all: a full disk or an interruption leaves what was there before."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def check_place(path: Path) -> None:
    """Refuse a place that nothing can be written at, before the work whose outcome is to go there.

    Raises
    ------
    OSError
        That names the path.
    """
    with _named(path):
        if not _is_special(path):
            with _draft(path.resolve()):
                pass


def write_whole(path: Path, content: str | bytes, *, new: bool = False, own: bool = False, mode: int = 0o666) -> None:
    """Write a file beside its place, then put it there in one step; on return it is on disk.

    Parameters
    ----------
    path
        Its place.
    content
        All that is to be in it; text becomes UTF-8, and bytes of names that are none their numbers.
    new
        Whether nothing may be there yet.
    own
        Whether the name is Murk's and not the user's: others can foresee it, and a link there is replaced, never
        followed. The mode of what is there does not stay.
    mode
        Who may read and write a file that was not there, less what the process leaves out.

    Raises
    ------
    FileExistsError
        When something is there that is not to be replaced.
    OSError
        That names the path, when it cannot be written.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    with _named(path):
        if new:
            # Nobody else gets the name meanwhile.
            path.open("x").close()
        elif not own and _is_special(path):
            path.write_bytes(data)
            return
        try:
            place = path.parent.resolve() / path.name if own else path.resolve()
            with _draft(place, mode, like=None if own else place) as (file, draft):
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.replace(draft, place)
            _sync_folder(place.parent)
        except BaseException:
            if new:
                path.unlink(missing_ok=True)
            raise


def open_own(path: Path, flags: int, mode: int = 0o666) -> int:
    """Open a file under a name that others can foresee; in a folder of several people's it may be a link of theirs.

    Raises
    ------
    OSError
        That names the path, also where it is a symbolic link.
    """
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


def _is_special(path: Path) -> bool:
    """Whether it is a pipe or a device, which nothing is put in the place of."""
    return path.exists() and not (path.is_file() or path.is_dir())


@contextmanager
def _draft(place: Path, mode: int = 0o666, like: Path | None = None) -> Iterator[tuple[IO[bytes], Path]]:
    """An empty file beside a place, with the mode of another file where there is one.

    Its name cannot be foreseen, and it is made by this very call: nobody has put a link there.
    """
    if place.is_dir() and not place.is_symlink():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    draft = place.with_name(f".murk-{secrets.token_hex(8)}.new")
    handle = open_own(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            if like is not None and like.exists():
                os.fchmod(handle, stat.S_IMODE(like.stat().st_mode))
            yield file, draft
    finally:
        draft.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors name the path that was asked for."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
