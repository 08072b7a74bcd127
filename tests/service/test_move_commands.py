"""`okl export`, `okl import` and `okl move`, as an operator calls them."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from okl.client import Client
from okl.errors import ServiceError, StoreCorrupt, StoreUnavailable
from service.cli import app
from service.store.base import Gone
from service.store.moving import Luggage
from service.store.sqlite import SqliteStore
from tests.service.api import MEAN
from tests.service.listening import listening

NAMES = ("a", "b", "c")


def okl(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result.output


@pytest.fixture
def store(tmp_path: Path) -> str:
    """With three sessions, each of which has something that waits."""
    found = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    with listening(found) as url, Client(url) as client:
        for name in NAMES:
            client.create(name, MEAN)
            client.rounds(name, [[1.0], [2.0], [3.0]], [3.0, 6.0, 9.0])
            client.predict(name, [4.0], id="waits")
    return found


def sessions(store: str) -> dict[str, tuple[int, int]]:
    with listening(store) as url, Client(url) as client:
        found = client.sessions()
        for one in found:
            assert client.update(one["name"], 12.0, id="waits")["t"] == 4
        return {one["name"]: (one["t"], one["waiting"]) for one in found}


def test_a_pipe_a_device_or_a_link_is_not_replaced(store: str, tmp_path: Path) -> None:
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    file.touch()
    link.symlink_to(file)
    assert "pipe is not a regular file" in okl("export", "--store", store, "--out", str(pipe), code=2)
    assert "link is a link" in okl("export", "--store", store, "--out", str(link), code=2)
    assert "not the standard output" in okl("export", "--store", store, "--out", "-", code=2)
    assert pipe.is_fifo()
    assert link.readlink() == file
    assert file.read_bytes() == b""


@pytest.mark.parametrize("command", ["export", "move --to sqlite:///other.sqlite3", "archive a --out a"])
def test_an_empty_store_is_not_that_of_the_settings(
    store: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OKL_STORE", store)
    assert "no scheme" in okl(*command.split(), "--store", "", code=2)


def test_all_sessions_go_through_a_file(store: str, tmp_path: Path) -> None:
    target, file = f"sqlite:///{tmp_path / 'target.sqlite3'}", str(tmp_path / "all.okl")
    assert okl("export", "--store", store, "--out", file).splitlines() == [
        f"{name}: exported at round 3" for name in NAMES
    ]
    assert "imported at round 3" in okl("import", file, "b", "--store", target)
    assert okl("import", file, "--store", target).splitlines() == [
        "a: imported at round 3",
        "b: imported at round 3, before",
        "c: imported at round 3",
    ]
    assert sessions(target) == dict.fromkeys(NAMES, (3, 1))
    assert sessions(store) == dict.fromkeys(NAMES, (3, 1))


def test_a_folder_gets_a_file_a_session(store: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    okl("export", "a", "c", "--store", store, "--out", str(out))
    assert sorted(path.name for path in out.iterdir()) == ["a.okl", "c.okl"]


def test_sessions_move_and_tell_where(store: str, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path / 'target.sqlite3'}"
    okl("move", "a", "--store", store, "--to", target, "--tell", "https://new.example")
    assert okl("move", "a", "--store", store, "--to", target) == "a: moved at round 3, before\n"
    assert okl("move", "--store", store, "--to", target).splitlines() == [f"{name}: moved at round 3" for name in "bc"]
    assert sessions(target) == dict.fromkeys(NAMES, (3, 1))
    with listening(store) as url:
        told = httpx.get(f"{url}/sessions/a").json()
        assert (told["type"], told["location"]) == ("/problems/session-moved", "https://new.example")


def test_a_move_is_undone_if_the_target_has_lost_the_session(store: str, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path / 'target.sqlite3'}"
    okl("move", "a", "--store", store, "--to", target)
    assert "exists" in okl("move", "a", "--store", store, "--to", target, "--undo", code=1)
    (tmp_path / "target.sqlite3").unlink()
    assert "There is no store" in okl("move", "a", "--store", store, "--to", target, "--undo", code=2)
    assert "see --undo" in okl("move", "a", "--store", store, "--to", target, code=1)
    undone = ("move", "a", "--store", store, "--to", target, "--undo")
    assert [okl(*undone) for _ in "12"] == ["a: opened again at round 3\n", "a: open at round 3\n"]
    for more in (("--undo",), ("a", "--undo", "--tell", "https://new.example")):
        assert "--undo takes the names" in okl("move", "--store", store, "--to", target, *more, code=2)
    assert sessions(store) == dict.fromkeys(NAMES, (3, 1))


@pytest.mark.parametrize(
    ("error", "code", "moved"),
    [(StoreCorrupt("a page is damaged"), 1, "ac"), (StoreUnavailable("it is gone"), 75, "a")],
)
def test_a_move_of_all_ends_early_only_if_the_store_does_not_answer(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: ServiceError, code: int, moved: str
) -> None:
    luggage = SqliteStore.luggage

    async def fail(self: SqliteStore, name: str, cursor: str | None = None) -> Luggage | Gone:
        if name == "b":
            raise error
        return await luggage(self, name, cursor)

    target = f"sqlite:///{tmp_path / 'target.sqlite3'}"
    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "luggage", fail)
        assert error.detail in okl("move", "--store", store, "--to", target, code=code)
    assert sessions(target) == dict.fromkeys(moved, (3, 1))


def test_an_address_that_is_too_long_is_told_before_anything_is_moved(store: str, tmp_path: Path) -> None:
    target, longest = f"sqlite:///{tmp_path / 'target.sqlite3'}", "https://new.example/" + '"' * 460
    told = okl("move", "a", "--store", store, "--to", target, "--tell", f"{longest}/", code=2)
    assert told == "Cannot do that: --tell has at most 480 bytes.\n"
    assert not (tmp_path / "target.sqlite3").exists()
    assert okl("move", "a", "--store", store, "--to", target, "--tell", longest) == "a: moved at round 3\n"


def test_what_cannot_be_done_is_told(store: str, tmp_path: Path) -> None:
    target, file = f"sqlite:///{tmp_path / 'target.sqlite3'}", tmp_path / "all.okl"
    assert okl("export", "nobody", "--store", store, "--out", str(file), code=1) == "nobody: Session not found\n"
    told = okl("move", "nobody", "--store", store, "--to", target, code=1)
    assert told == "nobody: Session not found: There is no session 'nobody'; `okl sessions` lists those of a service.\n"
    assert "there already" in okl("move", "--store", store, "--to", store, code=2)
    assert "unknown scheme" in okl("move", "--store", store, "--to", "mongo://host", code=2)
    told = okl("move", "a", "--store", store, "--to", target, "--tell", "notaurl", code=2)
    assert "--tell is like http://127.0.0.1:8000" in told
    for source, to in ((store, "redis://[::1/0"), ("redis://:secret@[::1/0", store)):
        refused = okl("move", "--store", source, "--to", to, code=2)
        assert "malformed" in refused
        assert "secret" not in refused
    file.write_bytes(b"not an archive")
    assert "Damaged archive" in okl("import", str(file), "--store", target, code=1)
    okl("export", "a", "--store", store, "--out", str(file))
    assert "nobody: not in" in okl("import", str(file), "nobody", "--store", target, code=1)


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'folder' / 'mistyped.sqlite3'}"
    target = f"sqlite:///{tmp_path / 'target.sqlite3'}"
    for command in (
        ("export", "--out", str(tmp_path / "all.okl")),
        ("move", "--to", target),
        ("archive", "a", "--out", str(tmp_path / "past")),
        ("backtest", "a", "--learner", "mean"),
        ("repair", "a"),
        ("keys", "list"),
        ("keys", "revoke", "abcdefgh"),
    ):
        assert "There is no store" in okl(*command, "--store", url, code=2)
    assert list(tmp_path.iterdir()) == []


def test_the_store_that_does_not_open_is_named_without_its_password(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "other").write_text("this is no store, and is longer than the head of one " * 2)
    down, other = "redis://user:hush@127.0.0.1:1/0", f"sqlite:///{tmp_path / 'other'}"
    for url, shown, code in ((down, "redis://127.0.0.1:1/0", 75), (other, other, 1)):
        for command in (
            ("export", "--out", str(tmp_path / "all.okl"), "--store", url),
            ("import", str(tmp_path / "other"), "--store", url),
            ("move", "--store", store, "--to", url),
            ("move", "--store", url, "--to", store),
            ("backtest", "a", "--learner", "mean", "--store", url),
            ("repair", "a", "--store", url),
            ("keys", "list", "--store", url),
        ):
            told = okl(*command, code=code)
            assert f": {shown}: " in told
            assert "hush" not in told
            assert (len(told.splitlines()), caplog.messages) == (1, [])


@pytest.mark.parametrize("command", ["export", "import"])
def test_a_wrong_setting_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("OKL_MAX_BATCH", "0")
    file = tmp_path / "all.okl"
    file.touch()
    told = okl(command, *([] if command == "export" else [str(file)]), "--store", f"sqlite:///{file}", code=2)
    assert told == "Setting OKL_MAX_BATCH: must be at least 1\n"


def test_nothing_goes_to_a_store_that_ends_with_the_command(store: str, tmp_path: Path) -> None:
    file = tmp_path / "all.okl"
    okl("export", "--store", store, "--out", str(file))
    assert "names no file" in okl("import", str(file), "--store", "sqlite:///", code=2)
    assert "names no file" in okl("move", "a", "--store", store, "--to", "sqlite://", code=2)
    assert "a: exported" in okl("export", "a", "--store", store, "--out", str(tmp_path / "again.okl"))


def test_files_that_cannot_be_written_are_told(store: str, tmp_path: Path) -> None:
    def export(out: Path, *names: str) -> str:
        return okl("export", *names, "--store", store, "--out", str(out), code=1)

    assert "No such file or directory: " in export(tmp_path / "missing" / "all.okl")
    (tmp_path / "other.okl.part").write_bytes(b"something else")
    assert "remove it" in export(tmp_path / "other.okl")
    assert (tmp_path / "other.okl.part").read_bytes() == b"something else"
    # What has nothing whole is nothing to go on with.
    assert "Session not found" in export(tmp_path / "nobody.okl", "nobody")
    assert not (tmp_path / "nobody.okl.part").exists()
    assert not (tmp_path / "nobody.okl").exists()
    told = export(tmp_path / "two.okl", "nobody", "a")
    assert "nobody: Session not found" in told
    assert "a: exported at round 3" in told
    assert (tmp_path / "two.okl").exists()
    assert not (tmp_path / "two.okl.part").exists()


def test_a_disk_that_is_full_is_told(store: str, tmp_path: Path) -> None:
    (tmp_path / "all.okl.part").symlink_to("/dev/full")
    assert "No space left on device" in okl("export", "a", "--store", store, "--out", str(tmp_path / "all.okl"), code=1)
    # The session was given back.
    okl("export", "a", "--store", store, "--out", str(tmp_path / "elsewhere.okl"))
