"""`okl backtest` against the learner itself, given the same rounds with the same delays."""

from __future__ import annotations

import asyncio
import fcntl
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from okl.client import Client
from okl.errors import DamagedArchive
from okl_core import learner_kinds
from service.archive import journals
from service.archive.journals import read_archive
from service.cli import app
from service.commands.backtest import backtest
from service.demo_data import magic
from service.session.played import Fixed
from service.session.scorecard import Issued
from service.session.session import Session
from service.session.snapshot import pack
from service.session.turn import Position
from tests.service.api import serving
from tests.service.definitions import GAUSSIAN, RIDGE, define
from tests.service.listening import listening

X, Y = magic()
GRADIENT: dict[str, Any] = {"kind": "kernel-ogd", "config": {"kernel": GAUSSIAN, "loss": "squared"}}
DELAY, N = 5, 40


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A session whose truths come late, and then a block of rounds."""
    url = f"sqlite:///{tmp_path / 'okl.sqlite3'}"

    async def lived() -> None:
        async with serving(url) as api:
            await api.create(RIDGE, y_range=[-1, 1])
            for row in range(N + DELAY):
                if row < N:
                    await api.predict(X[row].tolist(), id=f"r{row}")
                    # The clock of the entries has to tell them apart.
                    await asyncio.sleep(0.002)
                if row >= DELAY:
                    await api.update(float(Y[row - DELAY]), id=f"r{row - DELAY}")
                    await asyncio.sleep(0.002)
            await api.rounds(X[N : N + 20].tolist(), Y[N : N + 20].tolist())

    asyncio.run(lived())
    return url


def direct(learner: dict[str, Any]) -> Session:
    """The same rounds by hand."""
    session = Session(define(learner, y_range=(-1.0, 1.0)))
    made = []
    for row in range(N + DELAY):
        if row < N:
            raw = session.read_input(X[row])
            made.append((raw, session.forecast(raw)))
        if row >= DELAY:
            raw, forecast = made[row - DELAY]
            y, task = session.read_truth(float(Y[row - DELAY]))
            session.learn(session.play(raw, y, task, fixed=Fixed(Issued.of(forecast, y))))
    for row in range(N, N + 20):
        session.learn(session.play(session.read_input(X[row]), *session.read_truth(float(Y[row]))))
    return session


def test_a_backtest_is_what_the_learner_would_have_done(store: str) -> None:
    found = backtest(Console(), store, "s", ['{"kind": "kernel-ridge", "config": {"kernel": {"kind": "gaussian", '
                     '"sigma": 0.5}}}', '{"kind": "kernel-ogd", "config": {"loss": "squared", "kernel": {"kind": '
                     '"gaussian", "sigma": 0.5}}}'])  # fmt: skip
    by_name = {one.name: one for one in found.contestants}
    for learner in (RIDGE, GRADIENT):
        tally, own = by_name[learner["kind"]].tally, direct(learner).card.tally()
        assert tally.rounds == own.rounds == N + 20
        assert tally.error == pytest.approx(own.error, rel=1e-9)
    # The session's own learner has made the errors that the session has made.
    assert sum(found.errors) == pytest.approx(by_name["kernel-ridge"].tally.error, rel=1e-9)
    assert found.session.card.error == pytest.approx(sum(found.errors), rel=1e-9)
    outcome = by_name["kernel-ridge"].outcome
    assert outcome is not None
    assert outcome.own == pytest.approx(outcome.rival)
    assert np.isclose(found.session.card.error, direct(RIDGE).card.error)


def test_the_weights_are_those_of_the_session(store: str) -> None:
    async def lived() -> None:
        async with serving(store) as api:
            await api.rounds(X[60:80].tolist(), Y[60:80].tolist(), weight=[0.25, 4.0] * 10)
            await api.update(float(Y[80]), x=X[80].tolist(), weight=3.0)
            await api.rounds(X[81:120].tolist(), Y[81:120].tolist())

    asyncio.run(lived())
    found = backtest(Console(), store, "s", [json.dumps(RIDGE), "mean"])
    by_name = {one.name: one for one in found.contestants}
    assert sum(found.errors) == pytest.approx(by_name["kernel-ridge"].tally.error, rel=1e-9)
    assert found.session.card.error == pytest.approx(sum(found.errors), rel=1e-9)
    assert str(by_name["mean"].refusal).startswith("after 60 rounds: /weight mean takes no weights")


def test_the_command_prints_a_table(store: str) -> None:
    result = CliRunner().invoke(app, ["backtest", "s", "--learner", "mean", "--learner", "no-such", "--store", store])
    assert result.exit_code == 0, result.output
    for told in ("60 rounds of the journal", "as it was", "mean", "no-such", "beside"):
        assert told in " ".join(result.output.split()), result.output
    [reason] = [line for line in result.output.splitlines() if line.startswith("no-such: There is no kind")]
    assert reason.endswith(f"{max(learner_kinds())}.")
    assert CliRunner().invoke(app, ["backtest", "none", "--learner", "mean", "--store", store]).exit_code == 1
    assert CliRunner().invoke(app, ["backtest", "s", "--store", store]).exit_code == 2
    assert CliRunner().invoke(app, ["backtest", "s", "--learner", "pomdr", "--store", store]).exit_code == 1


def add_rounds(url: str, first: int, last: int, name: str = "s", **settings: Any) -> None:
    """And then a snapshot, behind which the journal is trimmed."""

    async def lived() -> None:
        async with serving(url, **settings) as api:
            for row in range(first, last):
                await api.update(float(Y[row]), x=X[row].tolist(), name=name)
            position, blob = await api.worker.rounds.with_session(name, packed)
            assert await api.store.snapshot(name, position.tip, blob)

    asyncio.run(lived())


def packed(session: Session, _: Any, position: Position) -> tuple[Position, bytes]:
    return position, pack(session, str(position))


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def test_an_archive_has_what_the_store_forgot(store: str, tmp_path: Path) -> None:
    folder = tmp_path / "past"
    archive = ("archive", "s", "--out", folder, "--store", store)
    assert "60 rounds written, up to round 60" in run(*archive)
    assert "0 rounds written" in run(*archive)
    add_rounds(store, 60, 80, retain_entries=30)
    assert "20 rounds written, up to round 80" in run(*archive)
    add_rounds(store, 80, 90, retain_entries=5)
    # What a crash has cut off at the end is written again.
    [path] = folder.glob("*.journal")
    path.write_bytes(path.read_bytes()[:-7])
    told = run("backtest", "s", "--learner", "mean", "--store", store)
    assert "5 rounds of the journal, from round 86 on" in told
    run("backtest", "s", "--learner", "mean", "--store", store, "--archive", folder, code=2)
    told = run(*archive)
    assert "6 rounds were trimmed" in told, told
    assert len(list(folder.glob("*.journal"))) == 2
    add_rounds(store, 90, 95, retain_entries=5)
    assert "5 rounds written, up to round 95" in run(*archive)
    # What is left out is not bridged: the newest rounds that follow from each other.
    base, entries = read_archive(folder)
    assert (base.round, entries[-1].tip.round) == (85, 95)
    told = run("backtest", "s", "--learner", "mean", "--store", store, "--archive", folder)
    assert "10 rounds of the journal, from round 86 on" in told


def test_an_archive_reports_that_the_session_went_on_from_another_state(store: str, tmp_path: Path) -> None:
    """Whether that is earlier than the archive's last round or has the same number; once."""
    archive = ("archive", "s", "--out", tmp_path / "past", "--store", store)

    async def learn() -> None:
        async with serving(store) as api:
            await api.call("POST", "/sessions/s/checkpoints", {"name": "kept"}, status=201)
            await api.rounds(X[60:80].tolist(), Y[60:80].tolist())

    async def roll_back() -> None:
        async with serving(store) as api:
            await api.call("POST", "/sessions/s/rollback", {"checkpoint": "kept"}, headers={"If-Match": "*"})

    asyncio.run(learn())
    assert "80 rounds written" in run(*archive)
    for _ in range(2):
        asyncio.run(roll_back())
        assert "went on from another state" in run(*archive)
        assert "another state" not in run(*archive)


def test_an_archive_that_a_full_disk_has_cut_off_is_continued(store: str, tmp_path: Path) -> None:
    folder = tmp_path / "past"
    archive = ("archive", "s", "--out", folder, "--store", store)
    run(*archive)
    (folder / "000002.journal").touch()
    (folder / "session").write_bytes(b"")
    assert read_archive(folder)[1][-1].tip.round == 60
    assert "0 rounds written, up to round 60" in run(*archive)
    assert (folder / "session").read_text() == "s\n"


def test_an_archive_goes_on_in_another_file_when_one_is_large(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "FILE_BYTES", 1_000)
    folder = tmp_path / "past"
    archive = ("archive", "s", "--out", folder, "--store", store)
    run(*archive)
    assert "0 rounds written, up to round 60" in run(*archive)
    assert len(list(folder.glob("*.journal"))) == 1
    add_rounds(store, 60, 80, retain_entries=30)
    assert "20 rounds written, up to round 80" in run(*archive)
    assert len(list(folder.glob("*.journal"))) == 2
    base, entries = read_archive(folder)
    assert (base.round, entries[-1].tip.round) == (0, 80)


def test_of_an_entry_that_was_cut_off_nothing_is_left(store: str, tmp_path: Path) -> None:
    """What follows it may be shorter, if rounds were taken back meanwhile."""
    folder = tmp_path / "past"
    archive = ("archive", "s", "--out", folder, "--store", store)
    run(*archive)
    with (folder / "000001.journal").open("ab") as file:
        file.write(struct.pack("<III", 1, 1, 100_000) + bytes(50_000))
    add_rounds(store, 60, 65, retain_entries=30)
    assert "5 rounds written, up to round 65" in run(*archive)
    assert read_archive(folder)[1][-1].tip.round == 65


def test_two_archives_do_not_write_to_one_folder(store: str, tmp_path: Path) -> None:
    folder = tmp_path / "past"
    archive = ("archive", "s", "--out", folder, "--store", store)
    folder.mkdir()
    with (folder / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # The command needs the lock for itself.
        assert "Another `okl archive` writes to" in run(*archive, code=2)
        assert [path.name for path in folder.iterdir()] == [".lock"]
    assert "60 rounds written" in run(*archive)


def test_an_archive_that_cannot_be_written_says_so(store: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    inside = tmp_path / "file" / "past"
    assert f"{inside} cannot be written" in run("archive", "s", "--out", inside, "--store", store, code=2)


def test_a_folder_is_for_one_session(store: str, tmp_path: Path) -> None:
    with listening(store) as url, Client(url) as client:
        client.create("other")
    run("archive", "s", "--out", tmp_path / "past", "--store", store)
    before = sorted((path.name, path.read_bytes()) for path in (tmp_path / "past").iterdir())
    assert "has the journal of session 's'" in run(
        "archive", "other", "--out", tmp_path / "past", "--store", store, code=2
    )
    assert sorted((path.name, path.read_bytes()) for path in (tmp_path / "past").iterdir()) == before
    add_rounds(store, 60, 65, name="other")
    assert "has the journal of session 's'; give another folder" in run(
        "backtest", "other", "--learner", "mean", "--archive", tmp_path / "past", "--store", store, code=2
    )
    assert "Session not found" in run("archive", "nobody", "--out", tmp_path / "none", "--store", store, code=1)
    assert not (tmp_path / "none").exists()


def test_an_archive_that_is_damaged_says_so(store: str, tmp_path: Path) -> None:
    run("archive", "s", "--out", tmp_path / "past", "--store", store)
    [path] = (tmp_path / "past").glob("*.journal")
    whole = path.read_bytes()
    for place in range(0, len(whole), 97):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            _, entries = read_archive(path.parent)
        except DamagedArchive:
            continue
        # A length that was made larger looks like an end that was cut off.
        assert sum(entry.count for entry in entries) < 60
    path.write_bytes(whole[:8] + struct.pack("<H", 2) + whole[10:])
    with pytest.raises(DamagedArchive, match="has version 2; this program reads version 1"):
        read_archive(path.parent)
