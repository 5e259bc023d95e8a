"""Atomic file writes: after a full disk or an interruption the previous content is still there."""

import errno
import logging
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_warned = set[str]()
_log = logging.getLogger(__name__)


def check_place(path: Path) -> None:
    """Check that a path can be written to, before its content is computed; raise `OSError` if it cannot."""
    with _named(path):
        if not _is_special(path):
            with _draft(path.resolve()):
                pass


def write_whole(path: Path, content: str | bytes, *, new: bool = False, own: bool = False, mode: int = 0o666) -> None:
    """Write a file atomically and durably: write a draft beside it, sync, rename.

    Text is encoded as UTF-8, lone surrogates as backslash escapes. With ``new`` the file must not exist yet. ``own``
    says that Murk chose the name, so that others can predict it: a symbolic link there is replaced, never followed, and
    the mode of an existing file is not kept. ``mode`` has the permissions of a new file, before the umask. Raises
    FileExistsError if ``new`` and the file exists; OSError, which names the path, if it cannot be written.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    with _named(path):
        if new:
            path.open("x").close()
        elif not own and _is_special(path):
            path.write_bytes(data)
            return
        try:
            target = path.parent.resolve() / path.name if own else path.resolve()
            with _draft(target, mode, like=None if own else target) as (file, draft):
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.replace(draft, target)
            sync(target.parent)
        except BaseException:
            if new:
                path.unlink(missing_ok=True)
            raise


def exposure(path: str | Path) -> str:
    """Return a clause that says that other users of this machine can read or write a file; empty if they cannot."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return ""
    return f"{path} can be read by other users of its machine (mode {mode:04o})" if mode & 0o077 else ""


def warn_if_exposed(path: str | Path, holds: str) -> None:
    """Warn, once in a process, if other users of this machine can read a file; ``holds`` is what they would learn."""
    exposed = exposure(path)
    if exposed and str(path) not in _warned:
        _warned.add(str(path))
        _log.warning("%s: it holds %s. Run chmod 600 %s", exposed, holds, path)


def open_own(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a file under a name that others can predict; raise `OSError` if it is a symbolic link."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


def _is_special(path: Path) -> bool:
    """Return whether a path is a pipe or a device, which must not be replaced."""
    return path.exists() and not (path.is_file() or path.is_dir())


@contextmanager
def _draft(place: Path, mode: int = 0o666, like: Path | None = None) -> Iterator[tuple[IO[bytes], Path]]:
    """Create a draft with an unpredictable name beside a file, with the mode of ``like`` if that exists."""
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


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a directory, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Replace the draft's path in errors by the requested one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
