"""`okl repair`: what it says before it changes anything, and what it leaves."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from okl.client import Client
from service.cli import app
from service.store.base import Committed, Entry, Reading
from service.store.opening import open_store
from tests.service.api import MEAN
from tests.service.listening import listening


def repair(store: str, *arguments: str, code: int) -> str:
    result = CliRunner().invoke(app, ["repair", *arguments, "--store", store])
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result.output


async def spoil(url: str) -> None:
    """Commit two rounds that nothing can read."""
    store = open_store(url)
    await store.open()
    try:
        reading = await store.read("s")
        assert isinstance(reading, Reading)
        tip = reading.head.tip
        for id in ("first", "second"):
            entry = Entry.after(tip, 1, id, b"not an entry")
            assert isinstance(await store.commit("s", tip, [entry]), Committed)
            tip = entry.tip
    finally:
        await store.close()


def test_a_session_goes_back_to_its_last_round_that_replays(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    with listening(store) as url, Client(url) as client:
        client.create("s", MEAN)
        client.rounds("s", [[1.0], [2.0], [3.0]], [3.0, 6.0, 9.0])
    assert "all 3 rounds replay" in repair(store, "s", code=0)
    asyncio.run(spoil(store))
    for _ in range(2):
        told = repair(store, "s", code=1)
        assert "3 of 5 rounds replay" in told
        assert "Nothing was changed" in told
    told = repair(store, "s", "--yes", code=0)
    assert "is at round 3 now; the last 2 rounds are gone" in told
    assert "all 3 rounds replay" in repair(store, "s", "--yes", code=0)
    with listening(store) as url, Client(url) as client:
        assert client.inspect("s")["t"] == 3
        assert client.update("s", 6.0, x=[1.0], id="first")["t"] == 4


def test_a_session_whose_position_was_damaged_goes_on_to_the_end_of_its_journal(tmp_path: Path) -> None:
    path = tmp_path / "okl.sqlite3"
    store = f"sqlite:///{path}"
    with listening(store) as url, Client(url) as client:
        client.create("s", MEAN)
        for y in (3.0, 6.0):
            client.update("s", y, x=[1.0])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE sessions SET round = 1")
    told = repair(store, "s", code=1)
    assert "2 rounds replay; then: the position of the session, round 1, is not the journal's end" in told
    assert "`okl repair s --yes` continues it at round 2." in told
    assert "is at round 2 now.\n" in repair(store, "s", "--yes", code=0)
    assert "all 2 rounds replay" in repair(store, "s", code=0)


def test_what_was_taken_back_can_be_sent_again(tmp_path: Path) -> None:
    """Whole requests are taken back, and with them their ids and the progress of bodies: nothing is learned twice or lost."""
    path = tmp_path / "okl.sqlite3"
    rows = [{"x": [float(i)], "y": float(i % 7)} for i in range(60)]
    first = {"x": [row["x"] for row in rows[:20]], "y": [row["y"] for row in rows[:20]], "id": "first"}

    def send(client: httpx.Client) -> tuple[dict[str, Any], dict[str, Any]]:
        body = b"".join(json.dumps(row).encode() + b"\n" for row in rows[20:])
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": "rest"}
        told = client.post("/sessions/s/rounds", json=first).json()
        lines = client.post("/sessions/s/rounds?block=10&answers=totals", content=body, headers=headers).text
        return told, json.loads(lines.splitlines()[-1])

    for broken, kept in ((50, 40), (20, 0)):
        with listening(f"sqlite:///{path}") as url, httpx.Client(base_url=url, trust_env=False) as client:
            client.delete("/sessions/s")
            client.post("/sessions", json={"name": "s", "learner": MEAN, "warmup_rounds": 4}).raise_for_status()
            told, last = send(client)
            assert (told["t"], last["t"], last["applied"]) == (20, 60, 40)
        with closing(sqlite3.connect(path)) as db, db:
            found = db.execute("SELECT round FROM journal WHERE round <= 20").fetchall()
            assert len(found) > 1, "the request has several entries"
            db.execute("UPDATE journal SET blob = zeroblob(length(blob)) WHERE round = ?", (broken,))
        assert f"is at round {kept} now" in repair(f"sqlite:///{path}", "s", "--yes", code=0)
        with listening(f"sqlite:///{path}") as url, httpx.Client(base_url=url, trust_env=False) as client:
            told, last = send(client)
            assert (told["duplicate"], last["t"], last["applied"]) == (kept > 0, 60, 40)
            again = client.get("/sessions/s/rounds?last=60").json()["rounds"][::-1]
            assert [row["x"] for row in again] == [row["x"] for row in rows]
            assert {row["id"] for row in again[:20]} == {"first"}


def test_what_cannot_be_repaired_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    assert "There is no store" in repair(store, "nobody", code=2)
    with listening(store):
        pass
    assert "Session not found" in repair(store, "nobody", code=1)
    assert "unknown scheme" in repair("mongo://host", "s", code=2)
    assert "Store unavailable" in repair("redis://127.0.0.1:9/0", "s", code=75)
