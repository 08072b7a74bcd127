"""The store contract, on every store: sessions, their rounds, and the answers to a caller with a stale tip."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from okl.errors import SessionExists
from service.store.base import (
    Applied,
    Entry,
    Found,
    Gone,
    Head,
    Limits,
    Reading,
    Store,
    Tip,
    Waiting,
)
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
    missed,
    outcomes_of,
    read,
    wait,
    what,
)
from tests.contract.stores import Place

pytestmark = pytest.mark.anyio


# Sessions


async def test_a_new_session_is_at_its_first_tip(session: Store, place: Place) -> None:
    await session.ping()
    assert all(isinstance(warning, str) for warning in await session.warnings())
    found = await head(session)
    assert found == Head(NAME, SUMMARY, FIRST, found.created_at)
    assert place.clock.is_now(found.created_at)
    assert await read(session) == Reading(found, FIRST, [], None, record=RECORD)
    assert await read(session, FIRST) == Reading(found, FIRST, [])
    assert await session.count() == 1


@pytest.mark.parametrize("tip", [OTHER, Tip(1, FIRST.digest)])
async def test_a_name_is_taken_once(session: Store, tip: Tip) -> None:
    before = await head(session)
    with pytest.raises(SessionExists):
        await session.create(NAME, b"other", tip, summary=SUMMARY)
    assert await head(session) == before


async def test_a_creation_sent_again_finds_its_session(session: Store) -> None:
    await append_ids(session, "p")
    await session.snapshot(NAME, (await head(session)).tip, STATE)
    before = await read(session)
    await session.create(NAME, RECORD, FIRST, summary=SUMMARY)
    assert await read(session) == before
    assert await session.count() == 1


@pytest.mark.parametrize("blob", [b"", STATE])
@pytest.mark.parametrize("round", [0, 1, 7000])
async def test_a_session_may_begin_with_a_snapshot(store: Store, place: Place, round: int, blob: bytes) -> None:
    """The session continues from the snapshot's round, as if its journal had been trimmed."""
    first = Tip(round, FIRST.digest)
    await store.create(NAME, RECORD, first, blob, summary=SUMMARY)
    found = await head(store)
    assert found == Head(
        NAME,
        SUMMARY,
        first,
        found.created_at,
        None,
        first,
        found.snapshot_at,
        snapshot_bytes=len(blob),
        summary_round=round,
    )
    assert place.clock.is_now(found.snapshot_at)
    assert (await store.list(None, 10)).heads == [found]
    assert await read(store) == Reading(found, first, [], blob, record=RECORD)
    assert await read(store, first) == Reading(found, first, [])
    await store.create(NAME, RECORD, first, blob, summary=SUMMARY)
    with pytest.raises(SessionExists):
        await store.create(NAME, RECORD, OTHER, b"other", summary=SUMMARY)
    assert await store.snapshot(NAME, first, b"other") is False
    entries = await append_ids(store, "a", "b")
    reading = await read(store)
    assert (reading.start, reading.entries, reading.snapshot) == (first, bare(entries), blob)
    assert (reading.head.journal_rounds, reading.head.tip.round) == (2, round + 2)
    assert await store.snapshot(NAME, entries[0].tip, b"newer") is True
    assert (await read(store)).snapshot == b"newer"


async def test_an_unknown_session_is_gone(store: Store) -> None:
    assert await store.read(NAME) == Gone()
    assert await store.read(NAME, FIRST) == Gone()
    assert await store.head(NAME) == Gone()
    assert await store.commit(NAME, FIRST, [entry(FIRST, "p")], [hold("q")]) == Gone()
    assert await store.commit(NAME, FIRST, []) == Gone()
    assert await store.find(NAME, FIRST, "p") == Gone()
    assert await store.snapshot(NAME, FIRST, STATE) is False
    assert await store.rewind(NAME, FIRST, FIRST) is False
    assert await store.delete(NAME) is False
    assert await store.delete(NAME, FIRST) is False
    assert await store.salvage(NAME) == Gone()
    assert await store.count() == 0


async def test_sessions_are_listed_by_name_page_by_page(store: Store) -> None:
    names = ["b", "a", "a.2", "é", "Z", "ab", "a-1"]
    for name in names:
        await store.create(name, RECORD, FIRST, summary=SUMMARY)
    pages, cursor = [], None
    while not pages or cursor is not None:
        page = await store.list(cursor, 3)
        pages.append([found.name for found in page.heads])
        cursor = page.cursor
    assert pages == [["Z", "a", "a-1"], ["a.2", "ab", "b"], ["é"]]
    assert (await store.list(None, 7)).cursor is None
    assert await store.count() == 7
    assert [await store.count(prefix) for prefix in ("a", "a-", "ab", "c")] == [4, 1, 1, 0]


async def test_nothing_of_a_deleted_session_is_left(store: Store, place: Place) -> None:
    await store.create(NAME, RECORD, FIRST, summary=SUMMARY)
    await wait(store, hold("p"), hold("q", blob=bytes(5000)))
    entries = chain(FIRST, "p", "r", blob=bytes(3000))
    await append(store, entries)
    await store.snapshot(NAME, entries[0].tip, bytes(3 << 20))
    assert await store.delete(NAME) is True
    assert await store.head(NAME) == Gone()
    await store.close()
    assert not place.residue()


async def test_a_session_is_deleted_at_the_tip_that_is_given(session: Store) -> None:
    (a,) = await append_ids(session, "a")
    for tip in (FIRST, OTHER, Tip(1, OTHER.digest), entry(a.tip, "b").tip):
        assert await session.delete(NAME, tip) is False
    assert (await head(session)).tip == a.tip
    assert await session.delete(NAME, a.tip) is True
    assert await session.delete(NAME, a.tip) is False
    assert await session.head(NAME) == Gone()


async def test_a_name_used_again_is_another_session(session: Store) -> None:
    entries = await append_ids(session, "p", "r")
    await wait(session, hold("q"))
    await session.snapshot(NAME, entries[0].tip, STATE)
    await session.delete(NAME)
    await session.create(NAME, RECORD, OTHER, summary=SUMMARY)
    found = await head(session)
    assert found == Head(NAME, SUMMARY, OTHER, found.created_at)
    everything = Reading(found, OTHER, [], None, record=RECORD)
    for tip in (FIRST, entries[0].tip, entries[1].tip):
        assert await read(session, tip) == everything
        assert missed(await session.commit(NAME, tip, [entry(tip, "t")])) == everything
        assert missed(await session.commit(NAME, tip, [], [hold("t")])) == everything
        assert await session.find(NAME, tip, "p") == Found(None, everything)
        assert await session.snapshot(NAME, tip, STATE) is False
        assert await session.rewind(NAME, tip, tip) is False
    assert await what(session, "q") is None
    assert await head(session) == found


async def test_what_is_stored_is_there_after_reopening(
    session: Store, place: Place, opened: Callable[[Store], Awaitable[Store]]
) -> None:
    await wait(session, hold("p"))
    await append_ids(session, "q")
    before = await read(session)
    await session.close()
    again = await opened(place.make())
    assert await read(again) == before
    assert await what(again, "p") == Waiting("p", hold("p").blob)
    assert await what(again, "q") == Applied("q", b"answer to q")


# Rounds


@pytest.mark.parametrize("size", [256, 100_000])
async def test_what_is_committed_is_read(session: Store, place: Place, size: int) -> None:
    created = await head(session)
    entries = chain(FIRST, "p", "é" * 40, blob=bytes(range(256)) * (size // 256))
    assert outcomes_of(await session.commit(NAME, FIRST, entries)) == []
    found = await head(session)
    assert place.clock.is_now(found.updated_at)
    expected = replace(created, tip=entries[-1].tip, updated_at=found.updated_at, journal_rounds=2)
    blob_bytes, answer_bytes = (
        sum(len(e.blob) for e in entries),
        sum(len(e.answer or b"") for e in entries),
    )
    assert found == replace(expected, journal_bytes=blob_bytes, remembered=2, remembered_bytes=answer_bytes)
    assert await read(session) == Reading(found, FIRST, bare(entries), None, record=RECORD)
    assert await read(session, FIRST) == Reading(found, FIRST, bare(entries))
    assert await read(session, entries[0].tip) == Reading(found, entries[0].tip, bare(entries[1:]))
    assert await read(session, entries[1].tip) == Reading(found, entries[1].tip, [])


async def test_large_numbers_keep_every_digit(session: Store) -> None:
    count = 2**53 - 2
    entries = [far := entry(FIRST, "p", count=count), entry(far.tip, "q")]
    for one in entries:
        await append(session, [one])
    assert (await read(session, far.tip)).entries == bare(entries[1:])
    assert (await head(session)).tip.round == count + 1


async def test_an_entry_of_several_rounds_moves_the_session_by_its_count(session: Store) -> None:
    entries = [ten := entry(FIRST, "a", count=10), one := entry(ten.tip, "b"), entry(one.tip, "c", count=3)]
    await append(session, entries)
    assert (await head(session)).journal_rounds == 14
    assert (await read(session, ten.tip)).entries == bare(entries[1:])
    assert missed(await session.commit(NAME, one.tip, [entry(one.tip, "d")])).entries == bare(entries[2:])


@pytest.mark.parametrize(
    "entries",
    [
        [entry(FIRST, "p"), entry(FIRST, "q")],
        [entry(FIRST, "p"), entry(entry(FIRST, "p").tip, "p")],
        [entry(OTHER, "p")],
        [entry(FIRST, "")],
        [entry(FIRST, "p", count=0)],
        [replace(entry(FIRST, "p"), blob=b"changed")],
    ],
)
async def test_entries_that_do_not_follow_are_the_callers_mistake(session: Store, entries: list[Entry]) -> None:
    with pytest.raises(ValueError, match="entries"):
        await session.commit(NAME, FIRST, entries)
    assert (await head(session)).tip == FIRST


# A caller with a stale tip


@pytest.mark.parametrize("seen", [0, 1, 2])
async def test_a_caller_behind_is_told_what_it_missed(session: Store, seen: int) -> None:
    entries = await append_ids(session, "a", "b", "c")
    tip = FIRST if seen == 0 else entries[seen - 1].tip
    before = await head(session)
    expected = Reading(before, tip, bare(entries[seen:]))
    assert missed(await session.commit(NAME, tip, [entry(tip, "p")])) == expected
    assert missed(await session.commit(NAME, tip, [], [hold("p")])) == expected
    assert missed(await session.commit(NAME, tip, [entry(tip, "p")], [hold("q")])) == expected
    assert await session.find(NAME, tip, "p") == Found(None, expected)
    assert await read(session, tip) == expected
    assert await head(session) == before


STRANGERS = [
    Tip(0, OTHER.digest),
    Tip(1, OTHER.digest),
    Tip(2, OTHER.digest),
    Tip(3, OTHER.digest),
    Tip(99, FIRST.digest),
]


@pytest.mark.parametrize("tip", [*STRANGERS, entry(FIRST, "sibling").tip, entry(FIRST, "long", count=2).tip])
@pytest.mark.parametrize("has_snapshot", [False, True])
async def test_a_caller_whose_past_is_not_the_sessions_is_told_everything(
    session: Store, tip: Tip, has_snapshot: bool
) -> None:
    entries = await append_ids(session, "a", "b", "c")
    start, after, state = FIRST, entries, None
    if has_snapshot:
        await session.snapshot(NAME, entries[0].tip, STATE)
        start, after, state = entries[0].tip, entries[1:], STATE
    before = await head(session)
    everything = Reading(before, start, bare(after), state, record=RECORD)
    assert await read(session) == everything
    assert await read(session, tip) == everything
    assert missed(await session.commit(NAME, tip, [entry(tip, "p")])) == everything
    assert missed(await session.commit(NAME, tip, [], [hold("p")])) == everything
    assert await session.find(NAME, tip, "a") == Found(Applied("a", b"answer to a"), everything)
    assert await head(session) == before


@pytest.mark.parametrize("inside", [5, 15])
async def test_a_tip_in_the_middle_of_an_entry_is_not_on_the_chain(session: Store, inside: int) -> None:
    entries = [ten := entry(FIRST, "a", count=10), entry(ten.tip, "b", count=10)]
    await append(session, entries)
    assert (await read(session, Tip(inside, ten.tip.digest))).is_whole


async def test_all_of_a_sound_session_can_be_salvaged(session: Store) -> None:
    entries = await append_ids(session, "a", "b", "c")
    assert await session.salvage(NAME) == await read(session)
    await session.snapshot(NAME, entries[0].tip, STATE)
    assert await session.salvage(NAME) == await read(session)


# A commit sent again


async def test_a_commit_sent_again_is_found_in_the_journal(session: Store) -> None:
    entries = [one := entry(FIRST, "a"), entry(one.tip, "b", count=2, answer=None)]
    await append(session, entries)
    before = await head(session)
    assert outcomes_of(await session.commit(NAME, FIRST, entries)) == []
    assert outcomes_of(await session.commit(NAME, one.tip, entries[1:])) == []
    assert await head(session) == before
    later = await append_ids(session, "c", "d")
    assert outcomes_of(await session.commit(NAME, FIRST, entries)) == []
    await session.snapshot(NAME, later[0].tip, STATE)
    assert outcomes_of(await session.commit(NAME, FIRST, entries)) == []
    assert (await head(session)).tip == later[-1].tip


async def test_a_commit_sent_again_is_found_where_the_snapshot_has_taken_its_entries(
    place: Place, opened: Callable[[Store], Awaitable[Store]]
) -> None:
    store = await opened(place.make(Limits(tail=0)))
    await store.create(NAME, RECORD, FIRST, summary=SUMMARY)
    entries = await append_ids(store, "a", "b", answer=None)
    await store.snapshot(NAME, entries[-1].tip, STATE)
    assert outcomes_of(await store.commit(NAME, FIRST, entries)) == []
    await append_ids(store, "c")
    assert outcomes_of(await store.commit(NAME, FIRST, entries)) == []


async def test_predictions_of_a_commit_sent_again_wait_once(session: Store) -> None:
    entries, holds = chain(FIRST, "a"), [hold("p"), hold("q")]
    for _ in range(2):
        assert outcomes_of(await session.commit(NAME, FIRST, entries, holds)) == [None, None]
    assert (await head(session)).waiting == 2
    await append_ids(session, "p")
    again = await session.commit(NAME, FIRST, entries, holds)
    assert outcomes_of(again) == [Applied("p", b"answer to p"), None]


async def test_a_commit_with_one_other_entry_is_not_the_same(session: Store) -> None:
    a, b = await append_ids(session, "a", "b", answer=None)
    longer = [a, b, entry(b.tip, "c")]
    other = [a, entry(a.tip, "b", blob=b"other")]
    for entries in (longer, other):
        assert missed(await session.commit(NAME, FIRST, entries)).head.tip == b.tip


# Ids


async def test_the_first_answer_of_an_id_stands(session: Store) -> None:
    entries = await append_ids(session, "a", "b")
    tip = entries[-1].tip
    before = await head(session)
    first = Applied("a", b"answer to a")
    assert await session.commit(NAME, tip, [entry(tip, "a")], [hold("p")]) == first
    assert await session.commit(NAME, FIRST, [entry(FIRST, "a", blob=b"other")]) == first
    assert await session.commit(NAME, OTHER, [entry(OTHER, "a", answer=None)]) == first
    assert await session.commit(NAME, tip, chain(tip, "c", "b", "a")) == Applied("b", b"answer to b")
    assert await head(session) == before
    assert await what(session, "a") == first
    assert await what(session, "p") is None


async def test_an_entry_without_an_answer_leaves_its_id_free(session: Store) -> None:
    await append_ids(session, "a", answer=None)
    assert await what(session, "a") is None
    assert (await head(session)).remembered == 0
    await append_ids(session, "a")
    assert await what(session, "a") == Applied("a", b"answer to a")


async def test_an_empty_answer_is_an_answer(session: Store) -> None:
    await append(session, [replace(entry(FIRST, "a"), answer=b"")])
    assert await what(session, "a") == Applied("a", b"")


async def test_ids_of_thousands_of_rounds_in_one_commit(session: Store) -> None:
    entries = chain(FIRST, *ids_from(1, 3000))
    await append(session, entries)
    assert (await read(session, entries[0].tip)).entries == bare(entries[1:])
    assert await what(session, "r1") == Applied("r1", b"answer to r1")
    assert await what(session, "r3000") == Applied("r3000", b"answer to r3000")
