"""`okl repair`: what it says before it changes anything, and what it leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from okl.client import Client
from service.cli import app
from service.store.base import Committed, Entry, Reading, open_store
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
            entry = Entry(tip.then(1, id, b"not an entry"), 1, id, b"not an entry")
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


def test_what_cannot_be_repaired_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    assert "There is no store" in repair(store, "nobody", code=2)
    with listening(store):
        pass
    assert "Session not found" in repair(store, "nobody", code=1)
    assert "unknown scheme" in repair("mongo://host", "s", code=2)
    assert "Store unavailable" in repair("redis://127.0.0.1:9/0", "s", code=75)
