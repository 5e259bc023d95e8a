"""Files are written whole or not at all."""

import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from murk._internal import atomic_files as _files
from murk._internal.atomic_files import check_place, open_own, write_whole
from murk.populations.ledger_places import write_durably
from murk.producers.ledger.names import DRAFT, key_path, make_key


@contextmanager
def small_files(size: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("new", [True, False])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, new: bool) -> None:
    path = tmp_path / "page"
    if not new:
        path.write_text("former")
    with small_files(1000), pytest.raises(OSError, match="page") as error:
        write_whole(path, "x" * 2000, new=new)
    assert error.value.filename == str(path)
    assert [one.read_text() for one in tmp_path.iterdir()] == ([] if new else ["former"])
    write_whole(path, "newer, \u00e4", new=new)
    assert path.read_text(encoding="utf-8") == "newer, \u00e4"


def test_a_new_file_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "page"
    path.write_text("former")
    with pytest.raises(FileExistsError):
        write_whole(path, b"newer", new=True)
    assert path.read_text() == "former"


def test_mode_and_link_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "page", tmp_path / "link"
    path.write_text("former")
    path.chmod(0o600)
    link.symlink_to(path)
    write_whole(link, "newer")
    assert link.is_symlink()
    assert path.read_text() == "newer"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_into_a_pipe_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_place(path)
        write_whole(path, "through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(path.stat().st_mode)


@pytest.mark.parametrize("place", [".", "nowhere/page", "file/page"])
def test_a_place_that_cannot_be_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    for write in (check_place, lambda path: write_whole(path, "")):
        with pytest.raises(OSError) as error:
            write(tmp_path / place)
        assert error.value.filename == str(tmp_path / place)
    check_place(tmp_path / "page")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def _victim(tmp_path: Path) -> Path:
    """A file elsewhere that somebody would have overwritten."""
    (tmp_path / "elsewhere").mkdir()
    victim = tmp_path / "elsewhere" / "file"
    victim.write_text("another's")
    return victim


def test_a_link_under_a_drafts_name_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may write into the folder plants one for every name that a draft could be foreseen to have."""
    victim, folder = _victim(tmp_path), tmp_path / "shared"
    folder.mkdir()
    (folder / f".page.{os.getpid()}").symlink_to(victim)
    write_whole(folder / "page", "mine")
    check_place(folder / "page")
    assert (folder / "page").read_text() == "mine"
    assert victim.read_text() == "another's"
    # Even one that was guessed.
    monkeypatch.setattr(_files.secrets, "token_hex", lambda size: "guessed")
    (folder / ".murk-guessed.new").symlink_to(victim)
    for write in (check_place, lambda path: write_whole(path, "mine")):
        with pytest.raises(FileExistsError):
            write(folder / "page")
    (folder / ".murk-guessed.new").unlink()
    (folder / ".murk-guessed.new").symlink_to(tmp_path / "elsewhere" / "new")
    with pytest.raises(FileExistsError):
        write_whole(folder / "page", "mine")
    assert [path.name for path in victim.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("write", [
    lambda folder: write_durably(folder / "name", "mine"),
    lambda folder: write_whole(folder / "name", "mine", own=True),
    lambda folder: make_key(folder / "ledger"),
])  # fmt: skip
@pytest.mark.parametrize("there", [True, False])
def test_a_link_under_a_name_of_murks_own_is_replaced(tmp_path: Path, write, there: bool) -> None:
    victim, folder = _victim(tmp_path), tmp_path / "shared"
    folder.mkdir()
    if not there:
        victim.unlink()
    for path in (folder / "name", key_path(folder / "ledger", DRAFT)):
        path.symlink_to(victim)
    write(folder)
    assert [path.read_text() for path in victim.parent.iterdir()] == ["another's"] * there


def test_a_lock_is_not_opened_through_a_link(tmp_path: Path) -> None:
    victim = _victim(tmp_path)
    (tmp_path / "log.lock").symlink_to(victim)
    with pytest.raises(OSError, match=r"log\.lock"):
        open_own(tmp_path / "log.lock", os.O_RDWR | os.O_CREAT)
