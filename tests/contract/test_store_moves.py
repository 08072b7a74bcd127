"""The store contract, on every store: a session that continues from another state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.store.base import Applied, Committed, Limits, Reading, Store, Tip, Waiting
from tests.contract.store_calls import (
    FIRST,
    NAME,
    OTHER,
    STATE,
    append,
    append_ids,
    bare,
    chain,
    entry,
    head,
    hold,
    missed,
    read,
    wait,
    what,
)
from tests.contract.stores import Make, Place

pytestmark = pytest.mark.anyio

TO = Tip(7, b"a digest at last")


async def replaced(store: Store, to: Tip = TO, snapshot: bytes = STATE) -> None:
    tip = (await head(store)).tip
    assert await store.replace(NAME, tip, b"new record", to, snapshot, summary=b"new", told=3) is True


@pytest.mark.parametrize("state", [b"", STATE, bytes(range(256)) * 10_000])
async def test_a_session_goes_on_from_another_state(session: Store, place: Place, state: bytes) -> None:
    entries = await append_ids(session, "a", "b", "c")
    await session.snapshot(NAME, entries[1].tip, b"old state")
    await wait(session, hold("p"))
    before = await head(session)
    await replaced(session, snapshot=state)
    found = await head(session)
    assert place.clock.is_now(found.snapshot_at)
    assert found == replace(
        before,
        tip=TO,
        summary=b"new",
        summary_round=7,
        told=3,
        snapshot_tip=TO,
        snapshot_at=found.snapshot_at,
        snapshot_bytes=len(state),
        journal_rounds=0,
        journal_bytes=0,
        tail_bytes=0,
    )
    everything = Reading(found, TO, [], state, record=b"new record")
    assert await read(session) == everything
    for tip in (FIRST, *(one.tip for one in entries)):
        assert await read(session, tip) == everything
        assert missed(await session.commit(NAME, tip, [entry(tip, "d")])) == everything
        assert await session.snapshot(NAME, tip, b"late") is False
    assert await session.last(NAME, 10) == []
    assert [await what(session, id) for id in "ap"] == [Applied("a", b"answer to a"), Waiting("p", hold("p").blob)]


@pytest.mark.parametrize("to", [Tip(0, TO.digest), TO, Tip(900, TO.digest)])
async def test_rounds_follow_the_new_state(session: Store, to: Tip) -> None:
    await append_ids(session, "a", "b", "c")
    await wait(session, hold("p"))
    await replaced(session, to)
    entries = chain(to, "p", "q", "r", blob=bytes(2000))
    await append(session, entries)
    assert await read(session) == Reading(await head(session), to, bare(entries), STATE, record=b"new record")
    assert await session.last(NAME, 10) == bare(entries)
    assert await session.commit(NAME, entries[-1].tip, [entry(entries[-1].tip, "a")]) == Applied("a", b"answer to a")
    assert await session.snapshot(NAME, entries[1].tip, b"newer") is True
    assert await read(session, to) == Reading(await head(session), to, bare(entries))
    assert await session.rewind(NAME, entries[2].tip, entries[1].tip) is True
    assert [await what(session, id) for id in "aqr"] == [
        Applied("a", b"answer to a"),
        Applied("q", b"answer to q"),
        None,
    ]


async def test_only_at_its_tip(session: Store) -> None:
    a, b = await append_ids(session, "a", "b")
    before = await read(session)
    for tip in (FIRST, a.tip, OTHER, Tip(2, OTHER.digest), entry(b.tip, "c").tip):
        assert await session.replace(NAME, tip, b"record", TO, STATE) is False
    assert await read(session) == before
    assert await session.replace("nobody", b.tip, b"record", TO, STATE) is False


async def test_a_repeated_replacement_replaces_nothing(session: Store) -> None:
    (a,) = await append_ids(session, "a")
    await replaced(session)
    (b,) = await append_ids(session, "b")
    before = await read(session)
    assert await session.replace(NAME, a.tip, b"record", TO, b"other") is True
    assert await session.replace(NAME, a.tip, b"record", Tip(7, OTHER.digest), b"other") is False
    assert await read(session) == before
    assert (await head(session)).tip == b.tip


async def test_one_of_two_replacements_is_made(session: Store) -> None:
    assert await session.replace(NAME, FIRST, b"one", TO, b"state one") is True
    assert await session.replace(NAME, FIRST, b"two", OTHER, b"state two") is False
    assert (await read(session)).record == b"one"
    assert await session.replace(NAME, TO, b"two", OTHER, b"state two") is True
    assert (await read(session)).snapshot == b"state two"


async def test_the_oldest_ids_are_forgotten_first_whatever_their_rounds(limited: Make) -> None:
    store = await limited(Limits(remembered=3))
    await append_ids(store, *(f"old{number}" for number in range(3)))
    for number, round in enumerate((0, 500, 0)):
        await replaced(store, Tip(round, bytes([number]) * 16))
        await append_ids(store, f"new{number}")
        assert isinstance(await what(store, f"new{number}"), Applied)
        assert await what(store, f"old{number}") is None
        assert (await head(store)).remembered == 3


async def test_a_settled_prediction_of_before_is_counted_once(session: Store) -> None:
    await wait(session, hold("p"), hold("q"))
    await replaced(session, Tip(0, TO.digest))
    answer = await session.commit(NAME, Tip(0, TO.digest), chain(Tip(0, TO.digest), "p"))
    assert isinstance(answer, Committed)
    assert (answer.waiting, answer.never_came) == (1, 0)


async def test_a_session_stays_as_it_is_while_a_prediction_waits(session: Store, place: Place) -> None:
    """A prediction moves no tip, so a caller that read the session before cannot know of it."""
    await wait(session, hold("p"))
    before = await read(session)
    assert await session.replace(NAME, FIRST, b"record", TO, STATE, unless_waiting=True) is False
    assert await read(session) == before
    assert await session.cancel(NAME, "p")
    assert await session.replace(NAME, FIRST, b"record", TO, STATE, unless_waiting=True) is True
    await session.commit(NAME, TO, [], [hold("q")])
    # The reply was lost, but the session was replaced.
    assert await session.replace(NAME, FIRST, b"record", TO, STATE, unless_waiting=True) is True
    assert (await read(session)).record == b"record"


@pytest.mark.parametrize(("remembered", "back", "is_kept"), [(9, 3, False), (9, 6, False), (9, 0, True), (4, 2, True)])
async def test_how_far_something_has_come_is_forgotten_with_the_entries_that_are_taken_back(
    limited: Make, remembered: int, back: int, *, is_kept: bool
) -> None:
    """Unless only it tells that the first of them, whose id is forgotten, was applied."""
    store = await limited(Limits(remembered=remembered))
    tips = [FIRST]
    await append(store, [entry(FIRST, "k")])
    tips.append((await head(store)).tip)
    for number in range(6):
        (one,) = chain(tips[-1], f"body{number}")
        assert isinstance(await store.commit(NAME, tips[-1], [one], [], Applied("body", b"%d" % number)), Committed)
        tips.append(one.tip)
    assert await store.rewind(NAME, tips[-1], tips[-1 - back]) is True
    assert await what(store, "body") == (Applied("body", b"5") if is_kept else None)
    assert await what(store, f"body{5 - back}") == (
        Applied(f"body{5 - back}", b"answer to body%d" % (5 - back)) if back < 6 else None
    )
    assert [await what(store, f"body{number}") for number in range(6 - back, 6)] == [None] * back
    assert await what(store, "k") == (Applied("k", b"answer to k") if remembered > 6 else None)
    following = chain((await head(store)).tip, "body9", "x", "y", "z")
    await append(store, following)
    assert (await head(store)).remembered == min(remembered, 1 + 6 - back + 4 + is_kept)
