"""Sessions that move between stores and names: whole, once, and wherever the mover dies."""

from __future__ import annotations

import itertools
import struct
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from okl.errors import (
    DamagedArchive,
    ServiceError,
    SessionExists,
    SessionFollows,
    SessionMoved,
    SessionMoving,
    SessionNotFound,
    StoreTimeout,
)
from service.archive.file import MAGIC, ArchiveReader, ArchiveWriter, sessions_in
from service.archive.mover import move, rename
from service.archive.transport import Carried, export, import_file, names_in
from service.session.definition import Definition
from service.session.record import encode_record
from service.store.base import Gone, Head, Reading, Store, Tip, WaitingPage, open_store
from service.store.moving import FOR_GOOD, Seal, Whole
from tests.contract.store_calls import STATE, append, chain, entry, head, hold, ids_from

pytestmark = pytest.mark.anyio

IDENTITY = bytes(range(16))
FIRST = Tip(0, IDENTITY)
IDS = ["p", "q", "gone", "cancelled", "many", "silent", "nothing", *ids_from(0, 9)]


@pytest.fixture
async def stores(tmp_path: Path, redis_url: str) -> AsyncIterator[tuple[Store, Store]]:
    """SQLite and Redis."""
    found = open_store(f"sqlite:///{tmp_path / 'moves.sqlite3'}"), open_store(redis_url)
    for store in found:
        await store.open()
    yield found
    for store in found:
        await store.close()


async def filled(store: Store, name: str = "s") -> None:
    """A session with something of everything."""
    record = encode_record(Definition(name), IDENTITY)
    await store.create(name, record, FIRST, summary=b"summary")
    holds = [hold("p"), hold("q", blob=bytes(5000)), hold("gone", wait_s=0.0), hold("cancelled")]
    await store.commit(name, FIRST, [], holds)
    entries = chain(FIRST, *ids_from(0, 9))
    await append(store, entries, name)
    await store.snapshot(name, entries[6].tip, STATE)
    await append(store, [entry(entries[-1].tip, "many", count=7, blob=bytes(3000), answer=bytes(2000))], name)
    await append(store, [entry((await head(store, name)).tip, "silent", answer=None)], name)
    await store.cancel(name, "cancelled")
    await store.keep(name, IDENTITY, "kept", entries[3].tip, bytes(range(256)) * 8000)


async def told(store: Store, name: str = "s") -> list[Any]:
    """All that a caller can find out; times to the microsecond, which is what Redis keeps."""
    reading, page, whole = await store.read(name), await store.waiting(name, None, 10), await store.whole(name)
    assert isinstance(reading, Reading)
    assert isinstance(page, WaitingPage)
    assert isinstance(whole, Whole)
    checkpoints = await store.kept(name)
    assert not isinstance(checkpoints, Gone)
    found = reading.head
    times = [found.created_at, found.updated_at, found.snapshot_at, *(one.expires_at for one in page.items)]
    return [
        [pytest.approx(time, abs=1e-6) for time in times],
        [getattr(found, field) for field in Head.__slots__ if not field.endswith("_at") and field != "name"],
        (reading.start, reading.entries, reading.snapshot),
        (whole.first, whole.base, whole.entries),
        await store.last(name, 100),
        [(one.id, one.blob) for one in page.items],
        [await store.find(name, found.tip, id) for id in IDS],
        [(one.name, one.tip, one.nbytes, await store.kept_state(name, one.name)) for one in checkpoints],
    ]


class Died(Exception):
    """The process is gone: it cleans up nothing."""


class Dying:
    """A store whose caller dies at its n-th call, before the store has done it or before the reply comes."""

    def __init__(self, store: Store, calls: Sequence[int], *, is_after: bool, count: itertools.count[int]) -> None:
        self._store = store
        self._calls = calls
        self._is_after = is_after
        self._count = count

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call(*given: Any, **named: Any) -> Any:
            number = next(self._count)
            if number > self._calls[0] or (number == self._calls[0] and not self._is_after):
                raise Died
            answer = await method(*given, **named)
            if number == self._calls[0]:
                raise Died
            return answer

        return call


def is_live(found: object) -> bool:
    return isinstance(found, Head) and not found.seal


async def forget_leases(*stores: Store) -> None:
    """As if the time of all seals for a while had passed."""
    for store in stores:
        file = getattr(store, "_file", None)
        if file is not None:
            connection = file.connect(5.0)
            connection.execute("UPDATE sessions SET sealed_until = 0 WHERE sealed_until < 9e300")
            connection.close()
            continue
        for name in await names_in(store):
            key = b"okl:{%b}:head" % name.encode()
            until = await store._on_session(name, "HGET", key, "sealed_until")  # type: ignore[attr-defined]
            if until is not None and int(until) < 2**53:
                await store._on_session(name, "HDEL", key, "sealed_until", "seal")  # type: ignore[attr-defined]


async def test_there_and_back(stores: tuple[Store, Store]) -> None:
    sqlite, redis = stores
    await filled(sqlite)
    before = await told(sqlite)
    for source, target in ((sqlite, redis), (redis, sqlite)):
        moved = await move(source, target, "s", to="https://new.example")
        assert (moved.name, moved.round, moved.is_new) == ("s", 18, True)
        assert await told(target) == before
        with pytest.raises(SessionMoved) as caught:
            await source.commit("s", FIRST, [])
        assert caught.value.extra["location"] == "https://new.example"
        assert await move(source, target, "s") == moved._replace(is_new=False)
    assert not is_live(await redis.head("s"))
    tip = (await head(sqlite, "s")).tip
    await append(sqlite, chain(tip, "p", "q", "cancelled"), "s")
    assert ((await head(sqlite, "s")).waiting, (await head(sqlite, "s")).never_came) == (0, 1)


@pytest.mark.parametrize("is_after", [False, True])
async def test_wherever_the_mover_dies(stores: tuple[Store, Store], *, is_after: bool) -> None:
    source, target = stores
    await filled(source)
    before = await told(source)
    deaths = 0
    for number in range(100):
        count = itertools.count()
        dying = [Dying(store, [number], is_after=is_after, count=count) for store in (source, target)]
        try:
            await move(dying[0], dying[1], "s")  # type: ignore[arg-type]
            break
        except Died:
            deaths += 1
        live = [is_live(await store.head("s")) for store in (source, target)]
        assert sum(live) <= 1
        await forget_leases(source, target)
        # It lives where it was, or the next call finishes; in between one may commit only to the one that lives.
        moved = await move(source, target, "s")
        assert [is_live(await store.head("s")) for store in (source, target)] == [False, True]
        assert await told(target) == before
        assert moved.round == 18
        await target.delete("s") if number % 2 else None
        await source.delete("s")
        await target.delete("s")
        await filled(source)
        before = await told(source)
    assert deaths > 8
    assert await told(target) == before


async def test_a_session_that_is_written_to_is_not_opened_twice(stores: tuple[Store, Store]) -> None:
    """The mover sleeps longer than its seal: the source has gone on, and the copy is never opened."""
    source, target = stores
    await filled(source)
    arrive = target.arrive

    async def slow(*given: Any) -> None:
        await arrive(*given)
        await forget_leases(source)
        await append(source, [entry((await head(source, "s")).tip, "meanwhile")], "s")

    target.arrive = slow  # type: ignore[method-assign]
    with pytest.raises(SessionMoving):
        await move(source, target, "s")
    assert is_live(await source.head("s"))
    assert await target.head("s") == Gone()


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_lost_reply_to_the_last_seal(stores: tuple[Store, Store], *, is_done: bool) -> None:
    source, target = stores
    await filled(source)
    before, seal = await told(source), source.seal

    async def losing(name: str, note: bytes, for_s: float, over: bytes | None = None) -> bool:
        if for_s < FOR_GOOD or is_done:
            await seal(name, note, for_s, over)
        if for_s == FOR_GOOD:
            raise StoreTimeout("no answer")
        return True

    source.seal = losing  # type: ignore[method-assign]
    with pytest.raises(StoreTimeout):
        await move(source, target, "s")
    source.seal = seal  # type: ignore[method-assign]
    assert [is_live(await store.head("s")) for store in stores] == [not is_done, False]
    assert (await move(source, target, "s")).is_new is not is_done
    assert await told(target) == before


async def test_what_is_in_the_way(stores: tuple[Store, Store]) -> None:
    source, target = stores
    await filled(source)
    await target.create("s", b"other", Tip(0, bytes(16)))
    with pytest.raises(SessionExists):
        await move(source, target, "s")
    assert is_live(await source.head("s"))
    await append(source, [entry((await head(source, "s")).tip, "on")], "s")
    with pytest.raises(SessionNotFound):
        await move(source, target, "nobody")
    await source.seal("s", b"another's", 60.0)
    with pytest.raises(SessionMoving):
        await move(source, target, "s", "elsewhere")


@pytest.mark.parametrize("which", [0, 1])
async def test_a_session_is_renamed(stores: tuple[Store, Store], which: int) -> None:
    store = stores[which]
    await filled(store)
    before = await told(store)
    assert (await rename(store, "s", "new")).round == 18
    assert await told(store, "new") == before
    assert await store.head("s") == Gone()
    await filled(store)
    for new_name in ("new", "s"):
        with pytest.raises(SessionExists):
            await rename(store, "s", new_name)
    assert await told(store) == before or is_live(await store.head("s"))


@pytest.mark.parametrize("is_after", [False, True])
async def test_wherever_a_renaming_dies(stores: tuple[Store, Store], *, is_after: bool) -> None:
    store, number = stores[1], 0
    for number in range(100):
        await filled(store)
        before = await told(store)
        try:
            await rename(Dying(store, [number], is_after=is_after, count=itertools.count()), "s", "new")  # type: ignore[arg-type]
            break
        except Died:
            pass
        assert sum([is_live(await store.head(name)) for name in ("s", "new")]) <= 1
        await forget_leases(store)
        if isinstance(await store.head("s"), Head):
            await rename(store, "s", "new")
        assert [is_live(await store.head(name)) for name in ("s", "new")] == [False, True]
        assert await told(store, "new") == before
        await store.delete("new")
    assert number > 8


# -- files ----------------------------------------------------------------------------------------------------------


async def exported(store: Store, path: Path, *names: str) -> list[Carried]:
    found: list[Carried] = []
    await export(store, names or await names_in(store), path, found.append)
    return found


async def imported(store: Store, path: Path) -> list[Carried]:
    found: list[Carried] = []
    await import_file(store, path, found.append)
    return found


async def test_through_files_and_back(stores: tuple[Store, Store], tmp_path: Path) -> None:
    sqlite, redis = stores
    for name in ("s", "t"):
        await filled(sqlite, name)
    before = [await told(sqlite, name) for name in ("s", "t")]
    assert [one.name for one in await exported(sqlite, tmp_path / "one")] == ["s", "t"]
    assert await imported(redis, tmp_path / "one") == [Carried("s", 18), Carried("t", 18)]
    assert [await told(redis, name) for name in ("s", "t")] == before
    assert await imported(redis, tmp_path / "one") == [Carried("s", 18, is_new=False), Carried("t", 18, is_new=False)]
    await exported(redis, tmp_path / "two")
    for name in ("s", "t"):
        await sqlite.delete(name)
    await imported(sqlite, tmp_path / "two")
    assert [await told(sqlite, name) for name in ("s", "t")] == before


async def test_an_export_goes_on_where_it_died(stores: tuple[Store, Store], tmp_path: Path) -> None:
    store, target = stores
    for name in "abc":
        await filled(store, name)
    path, part = tmp_path / "all", tmp_path / "all.part"
    for number in (2, 5, 12, 1):
        dying = Dying(store, [number], is_after=True, count=itertools.count())
        with pytest.raises(Died):
            await export(dying, ["a", "b", "c"], path, lambda _: None)  # type: ignore[arg-type]
        await forget_leases(store)
        assert not path.exists()
    whole = sessions_in(part)[0]
    assert list(whole) == ["a"]
    found = await exported(store, path)
    assert [one.is_new for one in found] == [name not in whole for name in "abc"]
    assert [one.trouble for one in await imported(target, path)] == [None] * 3
    for name in "abc":
        assert await told(target, name) == await told(store, name)


async def test_an_export_waits_for_the_seal_of_one_that_was_killed(stores: tuple[Store, Store], tmp_path: Path) -> None:
    store = stores[0]
    await filled(store)
    await store.seal("s", Seal("held", "killed").note(), 0.5)
    (found,) = await exported(store, tmp_path / "file", "s")
    assert found.is_new
    assert is_live(await store.head("s"))


@pytest.mark.parametrize("is_after", [False, True])
async def test_an_import_goes_on_where_it_died(stores: tuple[Store, Store], tmp_path: Path, *, is_after: bool) -> None:
    store, target = stores
    for name in "ab":
        await filled(store, name)
    before = [await told(store, name) for name in "ab"]
    await exported(store, tmp_path / "all")
    number = 0
    for number in range(100):
        dying = Dying(target, [number], is_after=is_after, count=itertools.count())
        try:
            await import_file(dying, tmp_path / "all", lambda _: None)  # type: ignore[arg-type]
            break
        except Died:
            pass
        for name in "ab":
            if is_live(await target.head(name)):
                assert await told(target, name) == before["ab".index(name)]
    assert number > 8
    assert [await told(target, name) for name in "ab"] == before


async def test_a_damaged_file_adds_no_damaged_session(stores: tuple[Store, Store], tmp_path: Path) -> None:
    store, target = stores
    for name in "ab":
        await filled(store, name)
    await exported(store, tmp_path / "good")
    good = (tmp_path / "good").read_bytes()
    damages = [good[:cut] for cut in range(1, len(good), len(good) // 23)]
    for place in range(0, len(good), len(good) // 37):
        damages.append(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
    damages += [b"", MAGIC[:5], good[: len(MAGIC)] + good[len(MAGIC) + 1 :], b"x" * 5000]
    for damaged in damages:
        (tmp_path / "bad").write_bytes(damaged)
        with pytest.raises(DamagedArchive):
            await imported(target, tmp_path / "bad")
        # What had begun to arrive is not left behind.
        for found in (await target.list(None, 10)).heads:
            assert is_live(found)
            assert await told(target, found.name) == await told(store, found.name)
            await target.delete(found.name)


async def test_what_is_wrong_with_a_file_is_told(stores: tuple[Store, Store], tmp_path: Path) -> None:
    store, target = stores
    await filled(store)
    await exported(store, tmp_path / "good")
    good = (tmp_path / "good").read_bytes()
    for bad, told_of in (
        (good[:-5], "the file ends in the middle. Take another copy"),
        (good + b"abc", "the file ends in the middle"),
        (good.replace(b"archive 1", b"archive 2", 1), "has version 2; this program reads version 1"),
        (b"something else", "is no archive of okl"),
    ):
        (tmp_path / "bad").write_bytes(bad)
        with pytest.raises(DamagedArchive, match=told_of):
            await imported(target, tmp_path / "bad")


async def test_a_file_with_holes_is_not_read_into_memory(stores: tuple[Store, Store], tmp_path: Path) -> None:
    with (tmp_path / "holes").open("wb") as file:
        file.write(MAGIC + struct.pack("<4sIQ", b"SESS", 100, 1 << 40))
        file.truncate(1 << 41)
    with pytest.raises(DamagedArchive, match="larger than any store keeps"):
        await imported(stores[0], tmp_path / "holes")


@pytest.mark.parametrize("which", [0, 1])
async def test_a_session_whose_entries_are_missing_is_not_left_behind(
    stores: tuple[Store, Store], tmp_path: Path, which: int
) -> None:
    source, target = stores[0], stores[which]
    await filled(source)
    await exported(source, tmp_path / "good", "s")
    await source.delete("s")
    with (tmp_path / "good").open("rb") as file, (tmp_path / "made up").open("wb") as made_up:
        writer = ArchiveWriter(made_up)
        for frame in ArchiveReader(file, "good").frames():
            if frame.kind != b"PAGE":
                writer.write(frame)
    (carried,) = await imported(target, tmp_path / "made up")
    assert "did not arrive as it was" in (carried.trouble or "")
    assert (await target.list(None, 10)).heads == []


def mutations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The document with one of its numbers another one, as JSON may have it."""
    strange = (float("nan"), float("inf"), -1, 10**19, -(10**19), 1e308, 9.1e15)
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], list):
            rows = [[*value[0][:i], other, *value[0][i + 1 :]] for i in range(len(value[0])) for other in strange]
            yield from (document | {key: [row, *value[1:]]} for row in rows)
        elif isinstance(value, list) and value:
            yield from (document | {key: [other, *value[1:]]} for other in strange)
        elif isinstance(value, int | float):
            yield from (document | {key: other} for other in strange)


async def test_a_file_of_strange_numbers_is_refused_or_taken_whole(stores: tuple[Store, Store], tmp_path: Path) -> None:
    source = stores[0]
    await filled(source)
    path = tmp_path / "good.okl"
    await exported(source, path, "s")
    with path.open("rb") as file:
        frames = list(ArchiveReader(file, "good").frames())
    await source.delete("s")
    other = tmp_path / "strange.okl"
    for i, frame in enumerate(frames):
        for document in mutations(frame.document):
            with other.open("wb") as file:
                writer = ArchiveWriter(file)
                for one in (*frames[:i], frame._replace(document=document), *frames[i + 1 :]):
                    writer.write(one)
            for store in stores:
                with suppress(DamagedArchive):
                    [carried] = await imported(store, other)
                    if carried.trouble is None:
                        await told(store)
                assert len((await store.list(None, 10)).heads) <= 1
                await store.delete("s")


async def test_other_sessions_of_the_name_stay(stores: tuple[Store, Store], tmp_path: Path) -> None:
    store, target = stores
    await filled(store)
    await exported(store, tmp_path / "one")
    await target.create("s", b"other", Tip(0, bytes(16)))
    (found,) = await imported(target, tmp_path / "one")
    assert found.trouble is not None
    assert (await head(target, "s")).tip == Tip(0, bytes(16))
    with pytest.raises(ServiceError):
        await exported(store, tmp_path / "two", "nobody")


async def test_a_challenger_goes_nowhere_without_its_champion(stores: tuple[Store, Store], tmp_path: Path) -> None:
    """It would be taken for what is left of one that was deleted."""
    source, target = stores
    await filled(source)
    await filled(source, "s~c")
    with pytest.raises(SessionFollows):
        await move(source, target, "s~c")
    assert is_live(await source.head("s~c"))
    await exported(source, tmp_path / "one", "s~c")
    (found,) = await imported(target, tmp_path / "one")
    assert "'s'" in (found.trouble or "")
    assert (await target.list(None, 10)).heads == []
    await move(source, target, "s")
    await move(source, target, "s~c")
    assert await names_in(target) == ["s", "s~c"]
