"""The store contract, on every store: notes stored with commits (summaries and alarms), and the newest rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from service.store.base import LAST_BYTES, SUMMARY_BYTES, Entry, Gone, Limits, Store, Tip
from tests.contract.store_calls import (
    FIRST,
    NAME,
    OTHER,
    RECORD,
    STATE,
    SUMMARY,
    append,
    append_ids,
    bare,
    chain,
    entry,
    head,
    hold,
    ids_from,
    outcomes_of,
    read,
)
from tests.contract.stores import Place

pytestmark = pytest.mark.anyio

# Summaries and alarms


async def test_a_summary_takes_the_place_of_an_earlier_one(session: Store) -> None:
    entries = await append_ids(session, *ids_from(1, 9))
    before = await head(session)
    assert (before.summary, before.summary_round) == (SUMMARY, 0)
    tips = [FIRST, *(one.tip for one in entries)]
    for round, summary in ((0, b""), (5, b"five \x00\xff"), (5, bytes(SUMMARY_BYTES)), (9, b"last")):
        assert await session.summarize(NAME, tips[round], summary) is True
        expected = replace(before, summary=summary, summary_round=round)
        assert await head(session) == expected
        assert (await read(session)).head == expected
        assert (await session.list(None, 1)).heads == [expected]
    assert await session.summarize(NAME, tips[8], b"earlier") is False
    assert (await head(session)).summary == b"last"


async def test_a_session_that_begins_later_has_a_summary_of_its_first_round(store: Store) -> None:
    first = Tip(7, FIRST.digest)
    await store.create(NAME, RECORD, first, STATE, summary=SUMMARY)
    assert (await head(store)).summary_round == 7
    assert await store.summarize(NAME, Tip(6, FIRST.digest), b"earlier") is False
    assert await store.summarize(NAME, first, b"same") is True


async def test_the_number_of_alarms_only_grows(session: Store) -> None:
    before = await head(session)
    assert before.told == 0
    for count, is_more in ((0, False), (1, True), (1, False), (3, True), (2, False), (2**53, True)):
        assert await session.told(NAME, FIRST, count) is is_more
    assert await head(session) == replace(before, told=2**53)


async def test_alarms_of_the_state_that_a_session_begins_with_were_delivered(store: Store) -> None:
    first = Tip(7, FIRST.digest)
    await store.create(NAME, RECORD, first, STATE, summary=SUMMARY, told=3)
    assert (await head(store)).told == 3
    assert await store.told(NAME, first, 3) is False
    assert await store.told(NAME, first, 4) is True
    with pytest.raises(ValueError, match="number"):
        await store.create("other", RECORD, FIRST, told=-1)
    assert await store.count() == 1


async def test_notes_of_no_session(session: Store) -> None:
    (*_, last_entry) = await append_ids(session, *ids_from(1, 9))
    await session.summarize(NAME, last_entry.tip, b"of the one before")
    await session.told(NAME, last_entry.tip, 9)
    await session.delete(NAME)
    assert await session.summarize(NAME, last_entry.tip, b"") is False
    assert await session.told(NAME, last_entry.tip, 10) is False
    assert await session.last(NAME, 1) == Gone()
    assert await session.count() == 0
    await session.create(NAME, RECORD, OTHER, summary=SUMMARY)
    found = await head(session)
    assert (found.summary, found.summary_round, found.told) == (SUMMARY, 0, 0)
    # Otherwise a worker that missed the replacement would report the old session for as many rounds as it had.
    assert await session.summarize(NAME, last_entry.tip, b"of the one before") is False
    assert await session.told(NAME, last_entry.tip, 9) is False
    assert await head(session) == found
    assert await session.summarize(NAME, OTHER, b"of this one") is True
    assert await session.told(NAME, OTHER, 1) is True


async def test_notes_of_a_state_that_was_replaced(session: Store) -> None:
    """Otherwise those of a worker that missed the replacement would stay for as many rounds as it had."""
    entries = await append_ids(session, *ids_from(1, 9))
    new = Tip(3, OTHER.digest)
    assert await session.replace(NAME, entries[-1].tip, RECORD, new, STATE, summary=b"as it is", told=1) is True
    found = await head(session)
    assert (found.summary, found.summary_round, found.told) == (b"as it is", 3, 1)
    for entry_before in entries:
        assert await session.summarize(NAME, entry_before.tip, b"taken back") is False
        assert await session.told(NAME, entry_before.tip, 7) is False
    assert await head(session) == found
    assert await session.summarize(NAME, new, b"goes on") is True
    assert await session.told(NAME, new, 2) is True


async def test_a_note_that_is_too_large_is_the_callers_mistake(session: Store) -> None:
    before = await head(session)
    large = bytes(SUMMARY_BYTES + 1)
    with pytest.raises(ValueError, match="4096"):
        await session.create("other", RECORD, FIRST, summary=large)
    with pytest.raises(ValueError, match="4096"):
        await session.summarize(NAME, FIRST, large)
    for number in (-1, 2**53 + 1, 2**70):
        with pytest.raises(ValueError, match="number"):
            await session.told(NAME, FIRST, number)
    assert await head(session) == before
    assert await session.count() == 1


async def test_notes_and_commits_are_not_in_each_others_way(session: Store) -> None:
    tips = asyncio.Queue[Tip]()

    async def commit_all() -> None:
        tip = FIRST
        for id in ids_from(1, 30):
            new = entry(tip, id)
            assert outcomes_of(await session.commit(NAME, tip, [new], [hold(f"p{id}")])) == [None]
            tip = new.tip
            tips.put_nowait(tip)

    async def note_all() -> None:
        for number in range(1, 31):
            tip = await tips.get()
            assert await session.summarize(NAME, tip, b"%d" % number) is True
            assert await session.told(NAME, tip, number) is True

    await asyncio.gather(commit_all(), note_all())
    found = await head(session)
    assert (found.tip.round, found.waiting) == (30, 30)
    assert (found.summary, found.summary_round, found.told) == (b"30", 30, 30)


# The newest rounds


async def last(store: Store, rounds: int) -> Sequence[Entry]:
    found = await store.last(NAME, rounds)
    assert not isinstance(found, Gone)
    return list(found)


async def test_the_newest_entries_cover_the_rounds_that_are_asked_for(session: Store) -> None:
    assert await last(session, 5) == []
    entries = [
        one := entry(FIRST, "a", count=3),
        two := entry(one.tip, "b", count=10, answer=None),
        entry(two.tip, "c"),
    ]
    await append(session, entries)
    for rounds, number in ((0, 0), (1, 1), (2, 2), (11, 2), (12, 3), (14, 3), (10**18, 3)):
        assert await last(session, rounds) == bare(entries[3 - number :])


@pytest.mark.parametrize("rounds", [1, 40, 250, 400])
async def test_the_newest_of_many_entries(session: Store, rounds: int) -> None:
    entries = chain(FIRST, *ids_from(1, 300), answer=None)
    await append(session, entries)
    assert await last(session, rounds) == bare(entries[-rounds:])


async def test_entries_behind_the_snapshot_are_among_the_newest(
    place: Place, opened: Callable[[Store], Awaitable[Store]]
) -> None:
    store = await opened(place.make(Limits(tail=2)))
    await store.create(NAME, RECORD, FIRST, summary=SUMMARY)
    entries = await append_ids(store, *ids_from(1, 9))
    await store.snapshot(NAME, entries[6].tip, STATE)
    assert await last(store, 3) == bare(entries[6:])
    assert await last(store, 100) == bare(entries[5:])
    assert await store.summarize(NAME, entries[8].tip, b"taken back") is True
    await store.rewind(NAME, entries[8].tip, entries[7].tip)
    assert await store.summarize(NAME, entries[8].tip, b"taken back") is False
    assert await store.summarize(NAME, entries[7].tip, b"as it is") is True
    assert await last(store, 2) == bare(entries[6:8])


async def test_the_newest_entries_have_a_bound_in_bytes(session: Store) -> None:
    third = bytes(LAST_BYTES // 3)
    entries = await append_ids(session, "a", "b", "c", "d", blob=third, answer=None)
    assert await last(session, 100) == bare(entries[1:])
    await append_ids(session, "too large", blob=bytes(LAST_BYTES + 1), answer=None)
    assert await last(session, 100) == []
    (small,) = await append_ids(session, "small")
    assert await last(session, 100) == bare([small])
