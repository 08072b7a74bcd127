"""The store contract, on every store: snapshots, trimming the journal before them, and rolling rounds back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from service.store.base import Applied, Entry, Limits, Reading, Store, Tip, Waiting
from tests.contract.store_calls import (
    FIRST,
    NAME,
    OTHER,
    RECORD,
    STATE,
    append,
    append_ids,
    bare,
    chain,
    entry,
    head,
    hold,
    ids_from,
    missed,
    read,
    wait,
    what,
)
from tests.contract.stores import Make, Place

pytestmark = pytest.mark.anyio


def size_of(entries: Sequence[Entry]) -> int:
    return sum(len(entry.blob) for entry in entries)


# Snapshots


@pytest.mark.parametrize("state", [b"", STATE, bytes(range(256)) * 10_000])
async def test_a_snapshot_takes_the_place_of_the_journal_before_it(session: Store, place: Place, state: bytes) -> None:
    entries = await append_ids(session, "a", "b", "c", "d", "e")
    at = entries[2].tip
    assert await session.snapshot(NAME, at, state) is True
    found = await head(session)
    assert (found.tip, found.snapshot_tip, found.snapshot_bytes) == (entries[-1].tip, at, len(state))
    assert place.clock.is_now(found.snapshot_at)
    assert (found.journal_rounds, found.journal_bytes, found.tail_bytes) == (
        2,
        size_of(entries[3:]),
        size_of(entries[:3]),
    )
    assert await read(session) == Reading(found, at, bare(entries[3:]), state, record=RECORD)
    assert await read(session, at) == Reading(found, at, bare(entries[3:]))
    assert await read(session, entries[0].tip) == Reading(found, entries[0].tip, bare(entries[1:]))
    more = await append_ids(session, "f")
    assert (await read(session)).entries == bare([*entries[3:], *more])
    assert (await head(session)).journal_bytes == size_of([*entries[3:], *more])


async def test_only_a_later_snapshot_is_kept(session: Store) -> None:
    entries = await append_ids(session, "a", "b", "c", "d")
    await session.snapshot(NAME, entries[2].tip, STATE)
    before = await read(session)
    for tip in (FIRST, entries[1].tip, entries[2].tip):
        assert await session.snapshot(NAME, tip, b"older") is False
    assert await read(session) == before
    assert await session.snapshot(NAME, entries[3].tip, b"newer") is True
    reading = await read(session)
    assert (reading.snapshot, reading.start, reading.entries) == (b"newer", entries[3].tip, [])


async def test_a_snapshot_that_is_not_on_the_chain_is_not_kept(session: Store) -> None:
    ten = entry(FIRST, "a", count=10)
    await append(session, [ten, entry(ten.tip, "b", count=10)])
    before = await head(session)
    sibling, inside, ahead = (
        entry(FIRST, "other", count=10).tip,
        Tip(5, ten.tip.digest),
        entry(OTHER, "x", count=99).tip,
    )
    for tip in (OTHER, sibling, inside, ahead):
        assert await session.snapshot(NAME, tip, STATE) is False
    assert await head(session) == before


async def test_a_snapshot_of_the_untouched_state_is_kept(session: Store) -> None:
    entries = await append_ids(session, "a", "b")
    assert await session.snapshot(NAME, FIRST, STATE) is True
    reading = await read(session)
    assert (reading.snapshot, reading.start, reading.entries) == (STATE, FIRST, bare(entries))
    assert reading.head.journal_rounds == 2


# The tail


async def test_a_tail_of_so_many_entries_stays_behind_the_snapshot(limited: Make) -> None:
    store = await limited(Limits(tail=3))
    entries = await append_ids(store, *ids_from(1, 10))
    await store.snapshot(NAME, entries[7].tip, STATE)
    assert (await head(store)).tail_bytes == size_of(entries[5:8])
    assert (await read(store, entries[4].tip)).entries == bare(entries[5:])
    beyond = await read(store, entries[3].tip)
    assert (beyond.is_whole, beyond.snapshot, beyond.entries) == (True, STATE, bare(entries[8:]))
    assert (await read(store, FIRST)).is_whole
    assert missed(await store.commit(NAME, FIRST, [entry(FIRST, "p", blob=b"other")])).is_whole


async def test_a_tail_of_so_many_bytes_stays_behind_the_snapshot(limited: Make) -> None:
    store = await limited(Limits(tail_bytes=1000))
    entries: list[Entry] = []
    for id, size in (("a", 100), ("b", 600), ("c", 500), ("d", 400), ("e", 900)):
        entries += chain((await head(store)).tip, id, blob=bytes(size))
        await append(store, entries[-1:])
    await store.snapshot(NAME, entries[3].tip, STATE)
    found = await head(store)
    assert (found.tail_bytes, found.journal_bytes) == (900, 900)
    assert not (await read(store, entries[1].tip)).is_whole
    assert (await read(store, entries[0].tip)).is_whole
    await store.snapshot(NAME, entries[4].tip, STATE)
    found = await head(store)
    assert (found.tail_bytes, found.journal_bytes) == (900, 0)
    assert (await read(store, entries[2].tip)).is_whole


async def test_an_entry_larger_than_the_tail_is_not_kept(limited: Make) -> None:
    store = await limited(Limits(tail_bytes=1000))
    entries = await append_ids(store, "a", "b", blob=bytes(1001), answer=None)
    await store.snapshot(NAME, entries[1].tip, STATE)
    assert (await head(store)).tail_bytes == 0
    assert (await read(store, entries[0].tip)).is_whole
    assert (await read(store, entries[1].tip)).entries == []
    later = await append_ids(store, "c")
    assert await read(store, entries[1].tip) == Reading(await head(store), entries[1].tip, bare(later))


@pytest.mark.parametrize("later", [Limits(tail=2), Limits(tail_bytes=30), Limits(tail=9), Limits(tail=0)])
async def test_the_tail_follows_a_change_of_its_limits(place: Place, limited: Make, later: Limits) -> None:
    store = await limited(Limits(tail=4))
    entries = await append_ids(store, *ids_from(1, 8), blob=b"ten bytes.")
    await store.snapshot(NAME, entries[5].tip, STATE)
    other = place.make(later)
    await other.open()
    assert await other.snapshot(NAME, entries[7].tip, STATE) is True
    await other.close()
    kept = min(later.tail, later.tail_bytes // 10, 6)
    found = await head(store)
    assert (found.tail_bytes, found.journal_bytes) == (10 * kept, 0)
    assert (await read(store, entries[7 - kept].tip)).entries == bare(entries[8 - kept :])
    assert (await read(store, entries[6 - kept].tip)).is_whole


async def test_the_tail_counts_entries_and_not_rounds(limited: Make) -> None:
    store = await limited(Limits(tail=3))
    entries: list[Entry] = []
    for count, id in enumerate("abcdef", start=2):
        entries.append(entry(entries[-1].tip if entries else FIRST, id, count=count))
        await append(store, entries[-1:])
        await store.snapshot(NAME, entries[-1].tip, STATE)
        assert (await head(store)).tail_bytes == size_of(entries[-3:])
    assert (await read(store, entries[2].tip)).entries == bare(entries[3:])
    assert (await read(store, entries[1].tip)).is_whole


async def test_thousands_of_large_rounds_are_trimmed(session: Store) -> None:
    for start in range(0, 2000, 200):
        await append_ids(session, *ids_from(start, start + 199), blob=bytes(2000))
    tip = (await head(session)).tip
    assert await session.snapshot(NAME, tip, STATE) is True
    found = await head(session)
    assert (found.journal_bytes, found.tail_bytes) == (0, 131 * 2000)
    assert await read(session) == Reading(found, tip, [], STATE, record=RECORD)
    assert len((await read(session, (await append_ids(session, "late"))[0].tip)).entries) == 0


# Rounds rolled back


async def test_rounds_are_taken_back(session: Store) -> None:
    a, b, c = await append_ids(session, "a", "b", "c")
    before = await head(session)
    assert await session.rewind(NAME, c.tip, a.tip) is True
    found = await head(session)
    assert (found.tip, found.journal_rounds, found.journal_bytes) == (a.tip, 1, len(a.blob))
    assert (found.remembered, found.remembered_bytes) == (1, len(b"answer to a"))
    assert (found.summary, found.created_at) == (before.summary, before.created_at)
    assert [await what(session, id) for id in "abc"] == [Applied("a", b"answer to a"), None, None]
    assert await read(session) == Reading(found, FIRST, bare([a]), None, record=RECORD)
    for tip in (b.tip, c.tip):
        assert (await read(session, tip)).is_whole
        assert missed(await session.commit(NAME, tip, [entry(tip, "d")])).is_whole
    other = [again := entry(a.tip, "b", blob=b"other"), entry(again.tip, "c", count=5)]
    await append(session, other)
    assert (await read(session)).entries == bare([a, *other])
    assert await what(session, "c") == Applied("c", b"answer to c")


@pytest.mark.parametrize("blob", [b"x", bytes(3000)])
async def test_rounds_are_taken_back_to_the_snapshot(session: Store, blob: bytes) -> None:
    entries = await append_ids(session, "a", "b", "c", "d", blob=blob)
    await session.snapshot(NAME, entries[1].tip, STATE)
    assert await session.rewind(NAME, entries[3].tip, entries[0].tip) is False
    assert await session.rewind(NAME, entries[3].tip, FIRST) is False
    assert (await head(session)).tip == entries[3].tip
    assert await session.rewind(NAME, entries[3].tip, entries[1].tip) is True
    found = await head(session)
    assert (found.journal_rounds, found.journal_bytes, found.tail_bytes) == (0, 0, 2 * len(blob))
    assert await read(session) == Reading(found, entries[1].tip, [], STATE, record=RECORD)
    assert (await read(session, FIRST)).entries == bare(entries[:2])


async def test_a_session_without_a_snapshot_goes_back_to_its_beginning(session: Store) -> None:
    entries = await append_ids(session, "a", "b")
    assert await session.rewind(NAME, entries[1].tip, FIRST) is True
    found = await head(session)
    assert await read(session) == Reading(found, FIRST, [], None, record=RECORD)
    assert (found.tip, found.remembered, found.journal_bytes) == (FIRST, 0, 0)


async def test_only_from_its_tip_and_to_a_tip_on_its_chain(session: Store) -> None:
    a, b = await append_ids(session, "a", "b")
    before = await read(session)
    for tip, to in [
        (a.tip, FIRST),
        (OTHER, FIRST),
        (b.tip, OTHER),
        (b.tip, Tip(1, b.tip.digest)),
        (b.tip, Tip(9, FIRST.digest)),
    ]:
        assert await session.rewind(NAME, tip, to) is False
    assert await read(session) == before
    assert await session.rewind(NAME, b.tip, b.tip) is True
    assert await read(session) == before


async def test_predictions_wait_on_when_rounds_are_taken_back(session: Store) -> None:
    await wait(session, hold("p"), hold("q"))
    (settling,) = await append_ids(session, "p")
    assert await session.rewind(NAME, settling.tip, FIRST) is True
    assert await what(session, "p") is None
    assert await what(session, "q") == Waiting("q", hold("q").blob)
    assert (await head(session)).waiting == 1
