"""The store contract, on every store: what each operation answers, in which order it checks, what it leaves behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from service.errors import SessionExists
from service.store.base import (
    APPLIED_KEPT,
    REMEMBERED_S,
    TAIL_EVENTS,
    AlreadyApplied,
    AlreadyWaiting,
    Appended,
    Behind,
    Event,
    Gone,
    Head,
    Held,
    Reading,
    Store,
    TooManyWaiting,
    Waiting,
    open_store,
)
from tests.contract.stores import STORES

pytestmark = pytest.mark.anyio

NAME, UID = "prices", "uid-1"
NOW = 1_700_000_000.123456789
HEAD = Head(NAME, UID, b'{"kind": "kons"}\x00\xff', NOW)


@pytest.fixture
async def session(store: Store) -> Store:
    await store.create(HEAD)
    return store


def event(round: int, id: str | None = None, *, count: int = 1, blob: bytes | None = None) -> Event:
    return Event(round, blob or f"round {round}".encode(), id, b"answer of %d" % round, count)


def waiting(id: str, *, wait: float = 60.0, now: float = NOW) -> Waiting:
    return Waiting(id, b"\x00forecast of " + id.encode(), now + wait)


async def append(store: Store, *events: Event, now: float = NOW, uid: str = UID) -> object:
    return await store.append(NAME, uid, events[0].round - events[0].count, events, now=now)


async def hold(store: Store, expected: int, prediction: Waiting, *, now: float = NOW, limit: int = 100) -> object:
    return await store.hold(NAME, UID, expected, prediction, now=now, limit=limit)


async def read(store: Store, after: int = -1) -> Reading:
    reading = await store.read(NAME, UID, after)
    assert isinstance(reading, Reading)
    return reading


async def head(store: Store) -> Head:
    found = await store.head(NAME)
    assert isinstance(found, Head)
    return found


async def append_rounds(store: Store, first: int, last: int) -> Sequence[Event]:
    events = [event(round) for round in range(first, last + 1)]
    assert await append(store, *events) == Appended()
    return events


# Sessions


async def test_a_new_session_is_at_round_zero(session: Store) -> None:
    await session.ping()
    assert await session.head(NAME) == HEAD
    assert await session.read(NAME) == Reading(HEAD, [])
    assert await session.count() == 1


async def test_a_name_is_taken_once(session: Store) -> None:
    with pytest.raises(SessionExists):
        await session.create(replace(HEAD, uid="uid-2", meta=b"other"))
    assert await session.head(NAME) == HEAD


async def test_a_creation_sent_again_finds_itself(session: Store) -> None:
    await session.create(HEAD)
    assert await session.count() == 1


@pytest.mark.parametrize("blob", [b"", b"state\x00\xff"])
@pytest.mark.parametrize("round", [0, 1, 7000])
async def test_a_session_may_begin_with_a_snapshot(store: Store, round: int, blob: bytes) -> None:
    """At its round, as if the journal had been trimmed behind it; it goes on from there."""
    await store.create(replace(HEAD, round=round), blob)
    kept = replace(HEAD, round=round, snapshot_round=round, snapshot_at=NOW, snapshot_bytes=len(blob))
    assert await head(store) == kept
    assert (await store.list(None, 10)).heads == [kept]
    assert await read(store) == Reading(kept, [], blob, round)
    assert await read(store, round) == Reading(kept, [])
    await store.create(replace(HEAD, round=round), blob)
    with pytest.raises(SessionExists):
        await store.create(replace(HEAD, round=round, uid="uid-2"), b"other")
    assert await read(store) == Reading(kept, [], blob, round)
    assert isinstance(await hold(store, round + 1, waiting("p")), Behind)
    assert await hold(store, round, waiting("p")) == Held()
    events = await append_rounds(store, round + 1, round + 3)
    found = await read(store)
    assert (found.events, found.snapshot, found.snapshot_round) == (events, blob, round)
    assert (found.head.journal_rounds, found.head.round) == (3, round + 3)
    assert await store.snapshot(NAME, UID, round + 2, b"newer", now=NOW + 1.0) is True
    assert (await read(store)).snapshot == b"newer"
    assert await store.delete(NAME) is True
    await store.create(HEAD)
    assert await read(store) == Reading(HEAD, [])


async def test_an_unknown_session_is_gone(store: Store) -> None:
    assert await store.read(NAME) == Gone()
    assert await store.head(NAME) == Gone()
    assert await append(store, event(1)) == Gone()
    assert await hold(store, 0, waiting("p")) == Gone()
    assert await store.look_up(NAME, UID, "p") == Gone()
    assert await store.snapshot(NAME, UID, 0, b"state", now=NOW) is False
    assert await store.delete(NAME) is False
    assert await store.count() == 0


async def test_another_uid_is_gone(session: Store) -> None:
    await append(session, event(1, "p"))
    assert await session.read(NAME, "uid-2") == Gone()
    assert await append(session, event(1, "p"), uid="uid-2") == Gone()
    assert await session.hold(NAME, "uid-2", 1, waiting("q"), now=NOW, limit=1) == Gone()
    assert await session.look_up(NAME, "uid-2", "p") == Gone()
    assert await session.snapshot(NAME, "uid-2", 1, b"state", now=NOW) is False
    assert (await head(session)).snapshot_round == -1


async def test_sessions_are_listed_by_name_page_by_page(store: Store) -> None:
    names = ["b", "a", "a.2", "é", "Z", "ab", "a-1"]
    for name in names:
        await store.create(replace(HEAD, name=name))
    pages, cursor = [], None
    while not pages or cursor is not None:
        page = await store.list(cursor, 3)
        pages.append([found.name for found in page.heads])
        cursor = page.cursor
    assert pages == [["Z", "a", "a-1"], ["a.2", "ab", "b"], ["é"]]
    assert (await store.list(None, 7)).cursor is None
    assert await store.count() == 7


async def test_nothing_of_a_deleted_session_is_left(
    store: Store, store_url: str, request: pytest.FixtureRequest
) -> None:
    await store.create(HEAD)
    await hold(store, 0, waiting("p"))
    await hold(store, 0, waiting("q"))
    await append(store, event(1, "p"), event(2))
    await store.snapshot(NAME, UID, 1, b"state", now=NOW)
    assert await store.delete(NAME) is True
    await store.close()
    assert not STORES[request.node.callspec.params["store_url"]].residue(store_url)


async def test_a_name_used_again_starts_afresh(session: Store) -> None:
    await append(session, event(1, "p"))
    await session.delete(NAME)
    again = replace(HEAD, uid="uid-2")
    await session.create(again)
    assert await session.read(NAME) == Reading(again, [])
    assert await append(session, event(2)) == Gone()
    assert await append(session, event(1, "p"), uid="uid-2") == Appended()


# Rounds


async def test_what_is_appended_is_read(session: Store) -> None:
    now = NOW + 1 / 3
    events = [event(1, "p", blob=bytes(range(256))), event(2)]
    assert await append(session, *events, now=now) == Appended()
    changed = replace(HEAD, round=2, updated_at=now, journal_rounds=2, journal_bytes=256 + len(b"round 2"))
    assert await session.read(NAME, UID, 0) == Reading(changed, events)
    assert await session.read(NAME, UID, 1) == Reading(changed, events[1:])
    assert await session.read(NAME, UID, 2) == Reading(changed, [])
    assert await session.head(NAME) == changed


async def test_large_numbers_keep_every_digit(session: Store) -> None:
    count = 2**53 - 2
    assert await append(session, event(count, count=count)) == Appended()
    assert await append(session, event(count + 1)) == Appended()
    assert (await read(session, count)).events == [event(count + 1)]
    assert (await head(session)).round == count + 1


async def test_an_event_of_several_rounds_moves_the_head_by_its_count(session: Store) -> None:
    events = [event(10, count=10), event(11), event(14, count=3)]
    assert await append(session, *events) == Appended()
    assert (await head(session)).journal_rounds == 14
    assert (await read(session, 10)).events == events[1:]
    assert isinstance(await append(session, event(12)), Behind)


@pytest.mark.parametrize("after", [5, 15, 99])
async def test_a_round_that_ends_no_event_is_read_from_the_start(session: Store, after: int) -> None:
    events = [event(10, count=10), event(20, count=10)]
    await append(session, *events)
    assert (await read(session, after)).events == events
    await session.snapshot(NAME, UID, 10, b"state", now=NOW)
    reading = await read(session, after)
    assert (reading.snapshot, reading.snapshot_round, reading.events) == (b"state", 10, events[1:])


@pytest.mark.parametrize("expected", [0, 1, 3, 9])
async def test_a_caller_behind_gets_what_it_missed(session: Store, expected: int) -> None:
    events = await append_rounds(session, 1, 2)
    missed = Behind(Reading(await head(session), events[expected:] if expected < 3 else events))
    assert await hold(session, expected, waiting("p")) == missed
    assert await append(session, event(expected + 1, blob=b"other")) == missed
    assert (await head(session)).round == 2


async def test_a_caller_behind_the_journal_gets_the_snapshot(session: Store) -> None:
    last = TAIL_EVENTS + 10
    events = await append_rounds(session, 1, last)
    await session.snapshot(NAME, UID, last - 1, b"state", now=NOW)
    missed = Behind(Reading(await head(session), events[-1:], b"state", last - 1))
    assert await append(session, event(5, blob=b"other")) == missed
    within_the_tail = Behind(Reading(await head(session), events[-2:]))
    assert await append(session, event(last - 1, blob=b"other")) == within_the_tail


async def test_events_sent_again_are_found_in_the_journal(session: Store) -> None:
    events = [event(1, "p"), event(3, "q", count=2)]
    await append(session, *events)
    before = await read(session)
    assert await append(session, *events) == Appended(replayed=True)
    await append(session, event(4))
    assert await append(session, *events) == Appended(replayed=True)
    assert await append(session, events[1]) == Appended(replayed=True)
    assert (await read(session)).events == [*before.events, event(4)]


@pytest.mark.parametrize(
    "other",
    [
        Event(1, b"other", "p", b"answer of 1"),
        Event(1, b"round 1", "p", b"other"),
        Event(2, b"round 1", "p", b"answer of 1", 2),
    ],
)
async def test_the_first_answer_of_an_id_stands(session: Store, other: Event) -> None:
    await append(session, event(1, "p"))
    assert await append(session, other) == AlreadyApplied("p", b"answer of 1")
    assert await append(session, event(2), replace(other, round=2 + other.count)) == AlreadyApplied("p", b"answer of 1")
    assert (await head(session)).round == 1


async def test_events_that_are_partly_in_the_journal_are_refused_as_a_whole(session: Store) -> None:
    await append(session, event(1), event(2))
    assert isinstance(await append(session, event(1), event(2), event(3)), Behind)
    assert isinstance(await append(session, event(1), event(2, blob=b"other")), Behind)
    assert (await head(session)).round == 2


async def test_an_empty_id_is_no_id(session: Store) -> None:
    assert await append(session, replace(event(1), id=""), replace(event(2), id="")) == Appended()
    assert (await read(session)).events == [event(1), event(2)]
    assert await append(session, replace(event(1), id="")) == Appended(replayed=True)


@pytest.mark.parametrize("events", [[], [event(2)], [event(1), event(3)], [event(1, "p"), event(2, "p")]])
async def test_a_caller_that_counts_wrong_is_stopped(session: Store, events: Sequence[Event]) -> None:
    with pytest.raises(ValueError, match="events must follow round 0"):
        await session.append(NAME, UID, 0, events, now=NOW)


async def test_the_latest_applied_ids_are_remembered_and_the_older_ones_forgotten(session: Store) -> None:
    last = APPLIED_KEPT + 1000
    for start in range(0, last, 1000):
        events = [event(round, f"p{round}") for round in range(start + 1, start + 1001)]
        assert await append(session, *events) == Appended()
    oldest = last - APPLIED_KEPT + 1
    remembered = AlreadyApplied(f"p{oldest}", b"answer of %d" % oldest)
    assert await session.look_up(NAME, UID, f"p{oldest}") == remembered
    assert await append(session, event(last + 1, f"p{oldest}")) == remembered
    assert await session.look_up(NAME, UID, "p1") is None
    assert await append(session, event(last + 1, "p1")) == Appended()


# Predictions that wait


async def test_a_prediction_waits_until_its_truth_comes(session: Store) -> None:
    prediction = waiting("p", wait=1 / 3)
    assert await session.look_up(NAME, UID, "p") is None
    assert await hold(session, 0, prediction) == Held()
    assert await session.look_up(NAME, UID, "p") == prediction
    assert (await head(session)).waiting == 1
    assert await append(session, event(1, "p")) == Appended()
    assert await session.look_up(NAME, UID, "p") == AlreadyApplied("p", b"answer of 1")
    assert (await head(session)).waiting == 0


async def test_a_prediction_sent_again_finds_itself(session: Store) -> None:
    prediction = waiting("p")
    await hold(session, 0, prediction)
    assert await hold(session, 0, prediction) == AlreadyWaiting(prediction)
    assert await hold(session, 0, Waiting("p", b"other", NOW + 1)) == AlreadyWaiting(prediction)
    assert (await head(session)).waiting == 1


async def test_hold_checks_in_the_order_of_the_contract(session: Store) -> None:
    prediction = waiting("held")
    await hold(session, 0, prediction)
    await append(session, event(1, "applied"))
    assert await hold(session, 0, waiting("applied"), limit=1) == AlreadyApplied("applied", b"answer of 1")
    assert await hold(session, 0, waiting("held"), limit=1) == AlreadyWaiting(prediction)
    assert isinstance(await hold(session, 0, waiting("new"), limit=1), Behind)
    assert await hold(session, 1, waiting("new"), limit=1) == TooManyWaiting()
    assert await hold(session, 1, waiting("new"), limit=2) == Held()


async def test_an_expired_prediction_makes_room_and_is_remembered_as_long_again(session: Store) -> None:
    short, long = waiting("short", wait=10), waiting("long", wait=1000)
    assert await hold(session, 0, short, limit=2) == Held()
    assert await hold(session, 0, long, limit=2) == Held()
    assert await hold(session, 0, waiting("third"), now=NOW + 9.999, limit=2) == TooManyWaiting()
    assert await hold(session, 0, waiting("third"), now=short.expires_at, limit=2) == Held()
    assert (await head(session)).waiting == 2
    assert await session.look_up(NAME, UID, "short") == short
    assert await hold(session, 0, short, now=NOW + 19) == AlreadyWaiting(short)
    assert await hold(session, 0, waiting("fourth"), now=NOW + 20, limit=2) == TooManyWaiting()
    assert await session.look_up(NAME, UID, "short") is None
    assert (await head(session)).waiting == 2


async def test_what_was_held_last_may_expire_first(session: Store) -> None:
    long, short, shorter = waiting("long", wait=1000), waiting("short", wait=10), waiting("shorter", wait=5)
    for prediction in (long, short, shorter):
        assert await hold(session, 0, prediction, limit=3) == Held()
    assert await hold(session, 0, waiting("a"), now=NOW + 4.999, limit=3) == TooManyWaiting()
    assert await hold(session, 0, waiting("a"), now=shorter.expires_at, limit=3) == Held()
    assert await hold(session, 0, waiting("b"), now=NOW + 9.999, limit=3) == TooManyWaiting()
    assert await session.look_up(NAME, UID, "shorter") == shorter
    assert await hold(session, 0, waiting("b"), now=short.expires_at, limit=3) == Held()
    assert await session.look_up(NAME, UID, "shorter") is None
    assert (await head(session)).waiting == 3


async def test_an_expired_prediction_can_still_be_settled(session: Store) -> None:
    await hold(session, 0, waiting("p", wait=10))
    await hold(session, 0, waiting("q"), now=NOW + 15)
    assert await append(session, event(1, "p")) == Appended()
    assert await session.look_up(NAME, UID, "p") == AlreadyApplied("p", b"answer of 1")
    assert (await head(session)).waiting == 1


async def test_nothing_expired_is_remembered_for_longer_than_a_day(session: Store) -> None:
    week = waiting("week", wait=7 * REMEMBERED_S)
    await hold(session, 0, week)
    await hold(session, 0, waiting("p"), now=week.expires_at + REMEMBERED_S - 1)
    assert await session.look_up(NAME, UID, "week") == week
    await hold(session, 0, waiting("q"), now=week.expires_at + REMEMBERED_S + 1)
    assert await session.look_up(NAME, UID, "week") is None


async def test_thousands_that_expired_together_are_forgotten_over_several_holds(session: Store) -> None:
    for number in range(2_500):
        await hold(session, 0, waiting(f"p{number}", wait=10), limit=10_000)
    later = NOW + 100
    for number in range(6):
        await hold(session, 0, waiting(f"late{number}", now=later), now=later)
    assert (await head(session)).waiting == 6
    assert await session.look_up(NAME, UID, "p0") is None
    assert await session.look_up(NAME, UID, "p2499") is None


# Snapshots


async def test_a_snapshot_takes_the_place_of_the_journal_before_it(session: Store) -> None:
    events = await append_rounds(session, 1, 5)
    later = NOW + 2 / 3
    state = bytes(range(256)) * 1000
    assert await session.snapshot(NAME, UID, 3, state, now=later) is True
    found = await head(session)
    assert (found.snapshot_round, found.snapshot_at, found.snapshot_bytes) == (3, later, len(state))
    assert (found.journal_rounds, found.journal_bytes) == (2, 2 * len(b"round 1"))
    assert await session.read(NAME) == Reading(found, events[3:], state, 3)
    assert await session.read(NAME, UID, 1) == Reading(found, events[1:])


@pytest.mark.parametrize("round", [0, 2, 3])
async def test_only_a_newer_snapshot_is_kept(session: Store, round: int) -> None:
    await append_rounds(session, 1, 4)
    await session.snapshot(NAME, UID, 3, b"state 3", now=NOW)
    assert await session.snapshot(NAME, UID, round, b"older", now=NOW) is False
    assert (await read(session)).snapshot == b"state 3"
    assert await session.snapshot(NAME, UID, 4, b"state 4", now=NOW) is True
    assert (await read(session)).snapshot == b"state 4"


@pytest.mark.parametrize("round", [5, 15, 21])
async def test_a_snapshot_must_be_at_the_end_of_an_event(session: Store, round: int) -> None:
    await append(session, event(10, count=10), event(20, count=10))
    assert await session.snapshot(NAME, UID, round, b"state", now=NOW) is False
    assert (await head(session)).snapshot_round == -1


async def test_a_snapshot_of_the_untouched_state_is_kept(session: Store) -> None:
    await append_rounds(session, 1, 2)
    assert await session.snapshot(NAME, UID, 0, b"state", now=NOW) is True
    reading = await read(session)
    assert (reading.snapshot, reading.snapshot_round, len(reading.events)) == (b"state", 0, 2)
    assert (await head(session)).journal_rounds == 2


async def test_a_tail_of_the_journal_stays_behind_the_snapshot(session: Store) -> None:
    last = 2 * TAIL_EVENTS
    await append_rounds(session, 1, last)
    await session.snapshot(NAME, UID, last - 5, b"state", now=NOW)
    start = last - 5 - TAIL_EVENTS
    within, beyond = await read(session, start), await read(session, start - 1)
    assert within.snapshot is None
    assert len(within.events) == TAIL_EVENTS + 5
    assert (beyond.snapshot, len(beyond.events)) == (b"state", 5)


async def test_what_is_stored_is_there_after_reopening(session: Store, store_url: str) -> None:
    await hold(session, 0, waiting("p"))
    await append(session, event(1, "q"))
    before = await read(session)
    await session.close()
    again = open_store(store_url)
    await again.open()
    assert await again.read(NAME, UID) == before
    assert await again.look_up(NAME, UID, "p") == waiting("p")
    await again.close()
