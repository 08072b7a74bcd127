"""Behaviour specific to the SQLite store: its file may be locked, lost, full or damaged, and other calls run beside it."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from okl.errors import ConfigurationError, StoreCorrupt, StoreError, StoreTimeout, StoreUnavailable
from service.store import sqlite_checkpoints, sqlite_file
from service.store.base import Applied, Committed, Limits, Store, Waiting
from service.store.opening import open_store
from service.store.sqlite import SqliteStore
from service.store.sqlite_checkpoints import CHECKPOINT_BYTES, Checkpoints
from service.store.sqlite_file import SqliteFile
from tests.contract.store_calls import (
    FIRST,
    NAME,
    OTHER,
    RECORD,
    STATE,
    append_ids,
    bare,
    chain,
    entry,
    head,
    hold,
    ids_from,
    outcomes_of,
    read,
    wait,
    what,
)
from tests.contract.stores import ManualClock
from tests.redis_server import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.sqlite3"


@asynccontextmanager
async def opened(path: Path, options: str = "") -> AsyncIterator[Store]:
    store = open_store(f"sqlite:///{path}{options}")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


# Its url and its settings


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://host/path",
        "sqlite:///x?synchronous=maybe",
        "sqlite:///x?synchronous",
        "sqlite:///x?timeout=-1",
        "sqlite:///x?timeout=inf",
        "sqlite:///x?timeout=\N{SUPERSCRIPT TWO}",
        "sqlite:///x?timeout=9999999",
        "sqlite:///a%00b",
        "sqlite:///x?a=b",
        "sqlite:///x?1.sqlite3",
        "sqlite:///x#1.sqlite3",
    ],
)
async def test_a_url_that_makes_no_sense_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        open_store(url)


@pytest.mark.parametrize("synchronous", ["off", "normal", "full"])
async def test_the_folder_is_made_and_every_durability_works(tmp_path: Path, synchronous: str) -> None:
    url = f"sqlite:///{tmp_path}/a%20folder/sessions.sqlite3?synchronous={synchronous}"
    store = open_store(url)
    await store.open()
    await store.create(NAME, RECORD, FIRST)
    await append_ids(store, "a")
    warnings = await store.warnings()
    assert [("power cut" in warning, "synchronous=normal" in warning) for warning in warnings] == (
        [(True, True)] if synchronous == "off" else []
    )
    await store.close()
    assert (tmp_path / "a folder" / "sessions.sqlite3").exists()


async def test_a_store_in_memory_keeps_the_contract() -> None:
    store = open_store("sqlite://")
    await store.open()
    await store.create(NAME, RECORD, FIRST)
    entries = await append_ids(store, "a")
    assert (await read(store)).entries == bare(entries)
    assert await store.delete(NAME) is True
    await store.close()


async def test_a_store_that_is_closed_or_not_opened_is_unavailable() -> None:
    store = open_store("sqlite://")
    with pytest.raises(StoreUnavailable):
        await store.ping()
    await store.open()
    await store.close()
    await store.close()
    for call in (store.count(), store.commit(NAME, FIRST, []), store.find(NAME, FIRST, "p")):
        with pytest.raises(StoreUnavailable):
            await call


# A file that cannot be opened


async def test_a_path_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "sessions.sqlite3"):
        with pytest.raises(StoreUnavailable):
            await open_store(f"sqlite:///{path}").open()


async def test_a_file_that_may_not_be_written_is_unavailable() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sessions.sqlite3"
        async with opened(path) as store:
            await store.create(NAME, RECORD, FIRST)
        os.chmod(path, 0o444)
        os.chmod(folder, 0o555)
        user = os.geteuid()
        os.seteuid(user or 65534)  # root may open any file
        try:
            with pytest.raises(StoreUnavailable):
                await open_store(f"sqlite:///{path}").open()
        finally:
            os.seteuid(user)


@pytest.mark.parametrize(
    "content", [b"this is not a database, only a text " * 100, b"SQLite format 3\x00" + bytes(4096)]
)
def test_a_file_that_is_no_database_is_corrupt(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt) as raised:
        asyncio.run(open_store(f"sqlite:///{path}").open())
    assert isinstance(raised.value.__cause__, sqlite3.Error)
    assert path.read_bytes() == content


@pytest.mark.parametrize("version", [1, 99])
async def test_another_schema_is_refused(path: Path, version: int) -> None:
    with connected(path) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(StoreCorrupt, match=f"schema version {version}"):
        await open_store(f"sqlite:///{path}").open()


async def test_a_database_of_another_program_is_refused(path: Path) -> None:
    with connected(path) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    with pytest.raises(StoreCorrupt, match="another program"):
        await open_store(f"sqlite:///{path}").open()


# A file that fails while in use


async def test_a_file_locked_for_too_long_is_a_timeout(path: Path) -> None:
    async with opened(path, "?timeout=0.2") as store:
        await store.create(NAME, RECORD, FIRST)
        with connected(path) as other:
            other.execute("BEGIN IMMEDIATE")
            calls = [store.commit(NAME, FIRST, [entry(FIRST, id)]) for id in "abc"]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(answer) for answer in answers] == [StoreTimeout] * 3
            assert (await read(store)).entries == []
            assert await what(store, "a") is None
            other.execute("ROLLBACK")
        await append_ids(store, "a")


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("synchronous", ["normal", "full"])
async def test_nothing_is_acknowledged_once_the_file_was_lost(path: Path, replaced: bool, synchronous: str) -> None:
    async with opened(path, f"?synchronous={synchronous}") as store:
        await store.create(NAME, RECORD, FIRST)
        (a,) = await append_ids(store, "a")
        os.rename(path, path.with_suffix(".away"))
        if replaced:
            shutil.copy(path.with_suffix(".away"), path)
        calls = [
            store.commit(NAME, a.tip, [entry(a.tip, "b")]),
            store.commit(NAME, a.tip, [], [hold("p")]),
            store.commit(NAME, a.tip, [entry(a.tip, "b", blob=bytes(1 << 20))]),
            store.create("other", RECORD, OTHER),
            store.snapshot(NAME, a.tip, b"state"),
            store.rewind(NAME, a.tip, FIRST),
            store.delete(NAME),
            store.ping(),
            store.read(NAME),
        ]
        for call in calls:
            with pytest.raises(StoreUnavailable, match=r"deleted or replaced .* put the file back, or restart"):
                await call


@pytest.mark.parametrize("way", ["log", "restored", "emptied"])
async def test_nothing_is_acknowledged_once_its_log_or_content_was_lost(path: Path, way: str) -> None:
    """As by a restore into the file, its log removed, under a running service."""
    async with opened(path) as store:
        await store.create(NAME, RECORD, FIRST)
        (a,) = await append_ids(store, "a")
        backup = path.with_suffix(".backup")
        shutil.copy(path, backup)
        if way == "emptied":
            os.truncate(path, 0)
        else:
            if way == "restored":
                shutil.copy(backup, path)
            path.with_name(f"{path.name}-wal").unlink()
            path.with_name(f"{path.name}-shm").unlink()
        with pytest.raises(StoreUnavailable, match=r"deleted or replaced"):
            await store.commit(NAME, a.tip, [entry(a.tip, "b")])


async def test_a_file_that_was_put_back_is_used_again(path: Path) -> None:
    async with opened(path) as store:
        await store.create(NAME, RECORD, FIRST)
        os.rename(path, path.with_suffix(".away"))
        with pytest.raises(StoreUnavailable):
            await store.ping()
        os.rename(path.with_suffix(".away"), path)
        await append_ids(store, "a")


@pytest.mark.parametrize(
    ("mount", "kind"),
    [
        (b"server:/ {} nfs4 rw 0 0\n", "nfs4"),
        (b"server:/ {}\\040of\\040others nfs4 rw 0 0\n", None),
        (b"/dev/sda1 {} ext4 rw 0 0\nserver:/ {}/a\\040b cifs rw 0 0\n", "cifs"),
        (b"server:/ /mnt/caf\xe9\xe2\x80\xa8 nfs rw 0 0\n/dev/sda1 {} ext4 rw 0 0\n", None),
    ],
)
async def test_a_network_file_system_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: bytes, kind: str | None
) -> None:
    """By the mount that is nearest to the file; the kernel escapes spaces, and leaves bytes that are no UTF-8."""
    folder = tmp_path / "sessions" / "a b"
    folder.mkdir(parents=True)
    mounts = tmp_path / "mounts"
    mounts.write_bytes(b"/dev/root / ext4 rw 0 0\n" + mount.replace(b"{}", str(folder.parent).encode()))
    monkeypatch.setattr(sqlite_file, "MOUNTS", mounts)
    store = open_store(f"sqlite:///{folder / 'file'}")
    assert [f"({kind})" in warning for warning in await store.warnings()] == [True] * (kind is not None)


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """Limit the size of this process's files to little more than the present write-ahead log."""
    size = max(path.with_name(f"{path.name}-wal").stat().st_size, path.stat().st_size)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10_000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("size", [20_000, 1 << 20])
async def test_a_full_disk_is_unavailable_and_loses_nothing(path: Path, size: int) -> None:
    async with opened(path) as store:
        await store.create(NAME, RECORD, FIRST)
        (a,) = await append_ids(store, "a")
        large = entry(a.tip, "large", blob=bytes(size))
        before = await read(store)
        with full_disk(path):
            with pytest.raises(StoreUnavailable):
                await store.commit(NAME, a.tip, [large], [hold("p")])
            with pytest.raises(StoreUnavailable):
                await store.snapshot(NAME, a.tip, bytes(size))
            assert await read(store) == before
        assert outcomes_of(await store.commit(NAME, a.tip, [large], [hold("p")])) == [None]


async def test_a_log_that_fills_the_disk_is_copied_into_the_file_and_makes_room(path: Path) -> None:
    async with opened(path) as store:
        await store.create(NAME, RECORD, FIRST)
        tip = (await append_ids(store, *(f"a{i}" for i in range(20)), blob=bytes(1000)))[-1].tip
        committed = fails = 0
        with full_disk(path):
            while fails == 0 or committed < 20:
                assert fails < 1000
                try:
                    added = entry(tip, f"b{committed}", blob=bytes(1000))
                    assert outcomes_of(await store.commit(NAME, tip, [added])) == []
                    tip, committed = added.tip, committed + 1
                except StoreUnavailable:
                    fails += 1
                    await asyncio.sleep(0.01)


async def test_checkpoints_that_fail_late_leave_the_disk_to_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk each copies the log as far as there is room."""
    starts: list[float] = []

    def fail_late(file: SqliteFile) -> None:
        starts.append(time.monotonic())
        time.sleep(0.05)
        raise StoreUnavailable("full")

    file = SqliteFile(str(path), "normal", 1.0)
    file.prepare().close()
    monkeypatch.setattr(SqliteFile, "check", fail_late)
    checkpoints = Checkpoints(file)
    checkpoints.start()
    checkpoints.ask()
    await asyncio.to_thread(wait_until, lambda: len(starts) > 1)
    assert starts[1] - starts[0] > 0.4
    before = time.monotonic()
    await checkpoints.close()
    assert time.monotonic() - before < 0.4


async def test_one_failing_call_does_not_take_others_with_it() -> None:
    store = open_store("sqlite://")
    await store.open()
    unbindable: bytes = object()  # type: ignore[assignment]
    good = [store.create(f"s{number}", RECORD, FIRST) for number in range(5)]
    bad = store.create("bad", unbindable, FIRST)
    answers = await asyncio.gather(*good[:3], bad, *good[3:], return_exceptions=True)
    assert [answer for answer in answers if answer is not None] == [answers[3]]
    assert isinstance(answers[3], StoreError)
    assert await store.count() == 5
    await store.close()


# Beside large sessions


async def test_only_small_commits_are_made_on_the_event_loop(path: Path) -> None:
    async def turns_of(call: object) -> int:
        task, turns = asyncio.ensure_future(call), 0  # type: ignore[call-overload]
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        assert isinstance(await task, Committed)
        return turns

    async with opened(path) as store:
        await store.create(NAME, RECORD, FIRST)
        small = chain(FIRST, "a", "b")
        assert await turns_of(store.commit(NAME, FIRST, small, [hold("p")])) == 1
        many = chain(small[-1].tip, *(f"m{number}" for number in range(100)), blob=b"")
        assert await turns_of(store.commit(NAME, small[-1].tip, many)) > 1
        large = entry(many[-1].tip, "large", blob=bytes(100_000))
        assert await turns_of(store.commit(NAME, many[-1].tip, [large])) > 1
        answered = entry(large.tip, "answered", answer=bytes(100_000))
        assert await turns_of(store.commit(NAME, large.tip, [answered], [hold("q")])) > 1
        assert await turns_of(store.commit(NAME, answered.tip, [], [hold("r", blob=bytes(100_000))])) > 1


async def test_a_prediction_in_a_room_full_of_expired_ones_is_kept(path: Path) -> None:
    clock = ManualClock()
    store = SqliteStore(str(path), limits=Limits(waiting=2000, waiting_bytes=4_000_000), clock=clock)
    await store.open()
    await store.create(NAME, RECORD, FIRST)
    await wait(store, *(hold(f"p{number}", wait_s=10.0, blob=bytes(2000)) for number in range(2000)))
    await clock.pass_time(10.0)
    assert await wait(store, hold("q", blob=bytes(1_500_000))) == [None]
    assert await what(store, "p1999") == Waiting("p1999", bytes(2000), is_expired=True)
    await store.close()


async def test_expired_predictions_whose_truths_came_take_no_room_of_others(path: Path) -> None:
    clock = ManualClock()
    store = SqliteStore(str(path), limits=Limits(waiting=2), clock=clock)
    await store.open()
    await store.create(NAME, RECORD, FIRST)
    for number in range(4):
        await wait(store, hold(f"p{number}", wait_s=10.0))
        await clock.pass_time(10.0)
        await append_ids(store, f"p{number}")
    await wait(store, hold("q", wait_s=10.0))
    await clock.pass_time(10.0)
    await append_ids(store, "a", "b")
    assert await what(store, "q") == Waiting("q", hold("q").blob, is_expired=True)
    await store.close()


@pytest.mark.parametrize(("commits", "size"), [(40, 1), (1, 300_000)])
async def test_the_log_is_copied_into_the_file_while_the_store_is_open(
    path: Path, monkeypatch: pytest.MonkeyPatch, commits: int, size: int
) -> None:
    """Whether many small commits or a large one have filled it."""
    monkeypatch.setattr(sqlite_checkpoints, "CHECKPOINT_BYTES", 300_000)
    async with opened(path) as store:
        await store.create(NAME, RECORD, FIRST)
        before = os.path.getsize(path)  # noqa: ASYNC240
        for i in range(commits):
            await append_ids(store, f"a{i}", blob=bytes(size))
        await asyncio.to_thread(wait_until, lambda: path.stat().st_size > before)


async def test_a_checkpoint_is_made_once_the_file_can_be_written_again(path: Path) -> None:
    """A connection that SQLite opened while it could only read never writes."""
    async with opened(path) as store:
        await store.create(NAME, RECORD, FIRST)
        size = os.path.getsize(path)  # noqa: ASYNC240
        file = SqliteFile(str(path), "normal", 5.0)
        made: list[sqlite3.Connection] = []

        def connect(timeout_s: float) -> sqlite3.Connection:
            how = "rw" if made else "ro"
            made.append(sqlite3.connect(f"file:{path}?mode={how}", uri=True, check_same_thread=False))
            return made[-1]

        file.connect = connect  # type: ignore[method-assign]
        checkpoints = Checkpoints(file)
        checkpoints.start()
        for tries in (1, 2):
            checkpoints.count(CHECKPOINT_BYTES)
            await asyncio.to_thread(wait_until, lambda tries=tries: len(made) == tries)
        await asyncio.to_thread(wait_until, lambda: path.stat().st_size > size)
        await checkpoints.close()


async def test_what_is_left_of_a_deleted_session_goes_at_the_next_opening(path: Path) -> None:
    async with opened(path) as store:
        await store.create(NAME, RECORD, FIRST)
        await append_ids(store, *(f"a{number}" for number in range(1000)), blob=bytes(500))
    with connected(path) as connection:  # as if the process had been killed here
        connection.execute("INSERT INTO garbage SELECT key FROM sessions")
        connection.execute("DELETE FROM records")
        connection.execute("DELETE FROM sessions")
    async with opened(path) as store:
        await store.create(NAME, RECORD, OTHER)
        await append_ids(store, "a1")
        assert await what(store, "a0") is None
        assert await what(store, "a1") == Applied("a1", b"answer to a1")
    with connected(path) as connection:
        counts = [
            connection.execute(f"SELECT COUNT(*) FROM {t}").fetchone()[0] for t in ("journal", "large", "garbage")
        ]
    assert counts == [1, 0, 0]
    async with opened(path) as store:
        assert (await head(store)).tip.round == 1


ALL = Limits(tail=10**6, tail_bytes=10**9)


@pytest.mark.parametrize("limits", [ALL, replace(ALL, tail=500), replace(ALL, tail_bytes=5_000)])
async def test_a_snapshot_does_not_read_the_tail(path: Path, limits: Limits) -> None:
    store = SqliteStore(str(path), limits=limits)
    await store.open()
    await store.create(NAME, RECORD, FIRST)
    entries = await append_ids(store, *ids_from(1, 510), blob=b"ten bytes.")
    assert await store.snapshot(NAME, entries[499].tip, STATE)
    with connected(path) as db:
        # Whoever adds these up fails.
        db.execute("UPDATE journal SET size = 'unreadable' WHERE round BETWEEN 20 AND 490")
    assert await store.snapshot(NAME, entries[-1].tip, STATE)
    kept = min(limits.tail, limits.tail_bytes // 10, 510)
    assert (await head(store)).tail_bytes == 10 * kept
    assert (await read(store, entries[510 - kept].tip)).entries == bare(entries[511 - kept :])
    await store.close()
