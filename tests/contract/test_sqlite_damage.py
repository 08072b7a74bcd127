"""A SQLite file with a wrong bit: each answer is correct or StoreCorrupt, and other sessions are unaffected.

The store does not inspect records, snapshots, predictions and answers: their writers have sealed them.
"""

from __future__ import annotations

import contextlib
import logging
import random
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from okl.errors import StoreCorrupt, StoreError
from service.store.base import Behind, Found, Gone, Head, Reading, Store, Tip
from service.store.sqlite import SqliteStore
from tests.contract.store_calls import FIRST, OTHER, RECORD, append, bare, chain, entry, hold
from tests.contract.stores import ManualClock

pytestmark = pytest.mark.anyio

NAMES = ("damaged", "sound")
IDS = ("a", "c", "e", "p", "q", "x")


async def fill(store: Store, name: str, first: Tip) -> Sequence[Tip]:
    """Write small and large values to every table."""
    await store.create(name, RECORD, first)
    entries = [*chain(first, "a", "b")]
    entries.append(entry(entries[-1].tip, "c", blob=bytes(3000), answer=bytes(2000)))
    entries.append(entry(entries[-1].tip, "d", count=5))
    entries.append(entry(entries[-1].tip, "e"))
    await append(store, entries, name)
    await store.snapshot(name, entries[2].tip, bytes(range(256)) * 20)
    await store.commit(name, entries[-1].tip, [], [hold("p"), hold("q", blob=bytes(2500))])
    return [first, *(entry.tip for entry in entries)]


@dataclass(frozen=True)
class Truth:
    tips: dict[str, Sequence[Tip]]
    answers: dict[str, Any]


async def observe(store: Store, tips: dict[str, Sequence[Tip]]) -> dict[str, Any]:
    """Each call and its answer, with StoreCorrupt as a type."""
    calls: dict[str, Any] = {"list": store.list(None, 10)}
    for name in NAMES:
        tip = tips[name][-1]
        calls[f"{name} head"] = store.head(name)
        calls[f"{name} read"] = store.read(name)
        calls[f"{name} last"] = store.last(name, 100)
        calls[f"{name} waiting"] = store.waiting(name, None, 100)
        calls[f"{name} count"] = store.count_waiting(name, [60.0, 9000.0])
        calls[f"{name} commit"] = store.commit(name, tips[name][0], [], [hold("new")])
        calls |= {f"{name} after {number}": store.read(name, after) for number, after in enumerate(tips[name])}
        calls |= {f"{name} find {id}": store.find(name, tip, id) for id in IDS}
    answers: dict[str, Any] = {}
    for what, call in calls.items():
        try:
            answers[what] = await call
        except StoreCorrupt:
            answers[what] = StoreCorrupt
    return answers


async def make(path: Path) -> Truth:
    store = SqliteStore(str(path), clock=ManualClock())
    await store.open()
    tips = {"damaged": await fill(store, "damaged", FIRST), "sound": await fill(store, "sound", OTHER)}
    truth = Truth(tips, await observe(store, tips))
    await store.close()
    return truth


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Store]:
    store = SqliteStore(str(path), clock=ManualClock())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def look(path: Path, truth: Truth) -> dict[str, Any]:
    async with opened(path) as store:
        return await observe(store, truth.tips)


def check_readings(found: dict[str, Any], truth: Truth) -> None:
    """Check that no answer contains rounds or a tip that are not the session's."""
    for what, answer in found.items():
        name = what.split()[0]
        if what.endswith(" last"):
            assert answer in (StoreCorrupt, Gone(), truth.answers[what]), what
        reading = (
            answer.reading if isinstance(answer, Behind) else answer.missed if isinstance(answer, Found) else answer
        )
        if isinstance(reading, Reading):
            tips = truth.tips[name]
            assert reading.head.tip == tips[-1], what
            assert reading.start in tips, what
            assert [entry.tip for entry in reading.entries] == list(tips[tips.index(reading.start) + 1 :]), what
            true = {entry.tip: entry for entry in truth.answers[f"{name} after 0"].entries}
            assert all(entry == true[entry.tip] for entry in bare(reading.entries)), what


# One value of one row


def damages(db: sqlite3.Connection) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Statements with arguments that damage each column of each row of the session: a flipped bit; another type."""
    for table in tables(db):
        columns = db.execute(f"PRAGMA table_info({table})").fetchall()
        names = [column[1] for column in columns]
        keys = [column[1] for column in columns if column[5]]
        owner = {"sessions": "key = 1", "large": "key <= 3"}.get(
            table, "session = 1" if "session" in names else "FALSE"
        )
        for row in db.execute(f"SELECT * FROM {table} WHERE {owner}").fetchall():
            values = dict(zip(names, row, strict=True))
            where = " AND ".join(f"{key} IS ?" for key in keys)
            for column in names:
                statement = f"UPDATE {table} SET {column} = ? WHERE {where}"
                for value in (*flips(values[column]), b"\xff\xfe", None):
                    yield f"{table}.{column} = {value!r:.40}", statement, (value, *(values[key] for key in keys))


def tables(db: sqlite3.Connection) -> Sequence[str]:
    """The tables, with `large` last: deleting from the others deletes from it."""
    found = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall()
    return sorted((name for (name,) in found), key=lambda name: name == "large")


def repair(db: sqlite3.Connection) -> None:
    db.execute("BEGIN IMMEDIATE")
    for table in tables(db):
        db.execute(f"DELETE FROM main.{table}")
        db.execute(f"INSERT INTO main.{table} SELECT * FROM original.{table}")
    db.execute("COMMIT")


def flips(value: Any) -> Sequence[Any]:
    match value:
        case int():
            return [value ^ 1, value ^ (1 << 40)]
        case float():
            return [-value]
        case bytes():
            return [bytes([(value[0] if value else 0) ^ 1]) + value[1:], value[:-1]]
        case str():
            return [chr(ord(value[0]) ^ 1) + value[1:]]
        case _:
            return [1]


async def test_a_wrong_value_is_told_or_harmless(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    original, path = tmp_path / "original.sqlite3", tmp_path / "sessions.sqlite3"
    truth = await make(original)
    shutil.copy(original, path)
    told = 0
    async with opened(path) as store:
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("ATTACH ? AS original", (str(original),))
        for what, statement, arguments in list(damages(db)):
            with contextlib.suppress(sqlite3.IntegrityError):
                db.execute(statement, arguments)
            found = await observe(store, truth.tips)
            check_readings(found, truth)
            if not what.startswith(("sessions.name", "large.key")):
                same = {call: answer for call, answer in found.items() if call.startswith("sound")}
                assert same == {call: truth.answers[call] for call in same}, what
            assert truth.answers["sound head"] in found["list"].heads, what
            told += StoreCorrupt in found.values()
            repair(db)
        assert await observe(store, truth.tips) == truth.answers
        db.close()
    assert told > 100


async def test_a_damaged_session_is_left_out_of_the_list(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "okl")
    path = tmp_path / "sessions.sqlite3"
    truth = await make(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE sessions SET digest = x'00' WHERE name = 'damaged'")
    connection.close()
    found = await look(path, truth)
    assert found["damaged head"] is StoreCorrupt
    assert found["list"].heads == [truth.answers["sound head"]]
    assert "left out of the list" in caplog.text
    store = SqliteStore(str(path))
    await store.open()
    assert await store.delete("damaged") is True
    await store.create("damaged", RECORD, OTHER)
    assert isinstance(await store.head("damaged"), Head)
    await store.close()


@pytest.mark.parametrize(
    "damage", ["blob = x'00'", "id = CAST(x'ff' AS TEXT)", "digest = x'00'", "count = 'a'", "count = 7"]
)
async def test_what_is_sound_is_salvaged_and_gone_back_to(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "sessions.sqlite3"
    truth = await make(path)
    tips = truth.tips["damaged"]
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"UPDATE journal SET {damage} WHERE session = 1 AND id = 'e'")
    connection.close()
    async with opened(path) as store:
        with pytest.raises(StoreCorrupt):
            await store.read("damaged")
        found = await store.salvage("damaged")
        assert isinstance(found, Reading)
        assert [entry.tip for entry in found.entries] == [tips[4]]
        assert (found.start, found.record, found.head.tip) == (tips[3], RECORD, tips[5])
        assert await store.rewind("damaged", tips[5], tips[4]) is True
        assert await store.salvage("damaged") == await store.read("damaged", None)


async def test_a_session_whose_tip_is_damaged_goes_back_to_its_last_entry(tmp_path: Path) -> None:
    path = tmp_path / "sessions.sqlite3"
    truth = await make(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE sessions SET digest = zeroblob(16) WHERE name = 'damaged'")
    connection.close()
    async with opened(path) as store:
        found = await store.salvage("damaged")
        assert isinstance(found, Reading)
        assert found.entries[-1].tip == truth.tips["damaged"][-1]
        assert await store.rewind("damaged", found.head.tip, found.entries[-1].tip) is True
        assert await store.read("damaged") == truth.answers["damaged read"]


# One bit of the file


async def test_a_wrong_bit_of_the_file_is_told_or_harmless(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    original, path = tmp_path / "original.sqlite3", tmp_path / "sessions.sqlite3"
    truth = await make(original)
    content = original.read_bytes()
    chance = random.Random(3)
    for _ in range(150):
        place, bit = chance.randrange(len(content)), 1 << chance.randrange(8)
        path.write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
        try:
            check_readings(await look(path, truth), truth)
        except StoreError:
            continue
