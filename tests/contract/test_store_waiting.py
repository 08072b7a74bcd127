"""The store contract, on every store: predictions that wait, expire and are forgotten; ids that are remembered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.store.base import (
    REMEMBERED_AFTER_EXPIRY_S,
    Applied,
    Committed,
    Found,
    Full,
    Limits,
    Store,
    Waiting,
)
from tests.contract.store_calls import (
    FIRST,
    NAME,
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
from tests.contract.stores import Make, Place, on_stores

pytestmark = pytest.mark.anyio

SHORT_S = 0.5
"""Long enough that a test under load is at its next line before it is over."""

waiting = on_stores(lambda case: not case.is_cluster)


def held(id: str, *, is_expired: bool = False) -> Waiting:
    return Waiting(id, hold(id).blob, is_expired)


async def counts(store: Store) -> tuple[int, int]:
    found = await head(store)
    return found.waiting, found.waiting_bytes


# Waiting


@pytest.mark.parametrize("blob", [b"", b"forecast", bytes(9000)])
async def test_a_prediction_waits_until_its_truth_comes(session: Store, blob: bytes) -> None:
    assert await what(session, "p") is None
    before = await head(session)
    assert await wait(session, hold("p", blob=blob)) == [None]
    assert await what(session, "p") == Waiting("p", blob)
    assert await counts(session) == (1, len(blob))
    assert (await head(session)).updated_at == before.updated_at
    await append_ids(session, "p")
    assert await what(session, "p") == Applied("p", b"answer to p")
    assert await counts(session) == (0, 0)


async def test_an_entry_without_an_answer_settles_too(session: Store) -> None:
    await wait(session, hold("p"))
    await append_ids(session, "p", answer=None)
    assert await what(session, "p") is None
    assert await counts(session) == (0, 0)


async def test_a_prediction_sent_again_finds_itself(session: Store) -> None:
    await wait(session, hold("p"))
    before = await counts(session)
    assert await wait(session, hold("p"), hold("p")) == [None, None]
    assert await wait(session, hold("p", blob=b"other", wait_s=1.0)) == [held("p")]
    assert await what(session, "p") == held("p")
    assert await counts(session) == before


async def test_a_prediction_made_elsewhere_is_not_kept(session: Store) -> None:
    """It is not kept, whether or not its id is known."""
    await wait(session, hold("p"))
    (a,) = await append_ids(session, "a")
    for holds in ([hold("p")], [hold("a")], [hold("p"), hold("q")]):
        assert missed(await session.commit(NAME, FIRST, [], holds)).head.tip == a.tip
    assert await what(session, "q") is None


@waiting
async def test_a_commit_of_nothing_asks_whether_the_session_is_there(session: Store, place: Place) -> None:
    await wait(session, hold("p", wait_s=SHORT_S))
    (a,) = await append_ids(session, "a")
    await place.clock.pass_time(1.25 * SHORT_S)
    before = await head(session)
    assert outcomes_of(await session.commit(NAME, a.tip, [])) == []
    assert missed(await session.commit(NAME, FIRST, [])).entries == bare([a])
    assert await head(session) == before
    assert before.waiting == 1


async def test_a_refused_commit_keeps_none_of_its_predictions(session: Store) -> None:
    (a,) = await append_ids(session, "a")
    assert missed(await session.commit(NAME, FIRST, [entry(FIRST, "b")], [hold("p")]))
    assert await session.commit(NAME, a.tip, [entry(a.tip, "a")], [hold("p")]) == Applied("a", b"answer to a")
    assert await what(session, "p") is None


async def test_a_caller_asks_what_it_missed_and_for_an_id_at_once(session: Store) -> None:
    await wait(session, hold("p"))
    entries = await append_ids(session, "a", "b")
    found = await session.find(NAME, entries[0].tip, "p")
    assert isinstance(found, Found)
    assert found.what == held("p")
    assert found.missed is not None
    assert (found.missed.start, found.missed.is_whole, len(found.missed.entries)) == (entries[0].tip, False, 1)


# Room


async def test_outcomes_come_in_the_order_of_the_predictions(limited: Make) -> None:
    store = await limited(Limits(waiting=3))
    await wait(store, hold("w"))
    (a,) = await append_ids(store, "a")
    holds = [hold("a"), hold("p"), hold("w"), hold("w", blob=b"other"), hold("b"), hold("q"), hold("r"), hold("p")]
    outcomes = [Applied("a", b"answer to a"), None, None, held("w"), Applied("b", b"answer to b"), None, Full(), None]
    assert outcomes_of(await store.commit(NAME, a.tip, chain(a.tip, "b"), holds)) == outcomes
    assert [await what(store, id) is None for id in "pqrw"] == [False, False, True, False]


async def test_a_full_waiting_room_refuses(limited: Make) -> None:
    store = await limited(Limits(waiting=2))
    assert await wait(store, hold("p"), hold("q"), hold("r")) == [None, None, Full()]
    assert await what(store, "r") is None
    assert await wait(store, hold("p"), hold("q", blob=b"other"), hold("r")) == [None, held("q"), Full()]
    await append_ids(store, "q")
    assert await wait(store, hold("q"), hold("r"), hold("s")) == [Applied("q", b"answer to q"), None, Full()]


async def test_a_waiting_room_may_be_full_of_bytes(limited: Make) -> None:
    store = await limited(Limits(waiting_bytes=1000))
    large, small = hold("p", blob=bytes(700)), hold("s", blob=bytes(300))
    assert await wait(store, large, hold("q", blob=bytes(301)), small) == [None, Full(), None]
    assert await counts(store) == (2, 1000)
    assert await wait(store, hold("r", blob=b"")) == [None]
    await append_ids(store, "p")
    assert await counts(store) == (2, 300)
    assert await wait(store, hold("q", blob=bytes(701)), hold("t", blob=bytes(700))) == [Full(), None]


async def test_an_entry_makes_room_for_the_prediction_that_comes_with_it(limited: Make) -> None:
    store = await limited(Limits(waiting=1))
    await wait(store, hold("p"))
    assert outcomes_of(await store.commit(NAME, FIRST, chain(FIRST, "p"), [hold("q")])) == [None]


async def test_no_room_at_all(limited: Make) -> None:
    store = await limited(Limits(waiting=0))
    assert await wait(store, hold("p")) == [Full()]


# Expiring


@waiting
async def test_a_prediction_expires_by_the_stores_clock(session: Store, place: Place) -> None:
    """It expires even if nobody writes."""
    await wait(session, hold("p", wait_s=SHORT_S), hold("q"))
    assert await what(session, "p") == held("p")
    await place.clock.pass_time(1.25 * SHORT_S)
    assert await what(session, "p") == held("p", is_expired=True)
    assert await what(session, "q") == held("q")


@waiting
async def test_an_expired_prediction_is_remembered_for_as_long_again(session: Store, place: Place) -> None:
    await wait(session, hold("p", wait_s=SHORT_S), hold("q"))
    await place.clock.pass_time(1.25 * SHORT_S)
    assert await wait(session, hold("p")) == [held("p", is_expired=True)]
    again = await session.commit(NAME, FIRST, [], [hold("q"), hold("p")])
    assert outcomes_of(again) == [None, held("p", is_expired=True)]
    assert await counts(session) == (1, len(hold("q").blob))
    await place.clock.pass_time(SHORT_S)
    assert await what(session, "p") is None
    assert await wait(session, hold("p")) == [None]
    assert await what(session, "p") == held("p")
    assert (await head(session)).waiting == 2


@on_stores(lambda case: case.has_manual_clock)
async def test_nothing_expired_is_remembered_for_longer_than_a_day(session: Store, place: Place) -> None:
    week_s = 7 * REMEMBERED_AFTER_EXPIRY_S
    await wait(session, hold("p", wait_s=week_s))
    await place.clock.pass_time(week_s + REMEMBERED_AFTER_EXPIRY_S - 1)
    await wait(session, hold("q"))
    assert await what(session, "p") == held("p", is_expired=True)
    await place.clock.pass_time(1)
    assert await what(session, "p") is None


@on_stores(lambda case: case.has_manual_clock)
async def test_the_moment_at_which_a_prediction_expires(session: Store, place: Place) -> None:
    await wait(session, hold("p", wait_s=10.0))
    await place.clock.pass_time(10.0)
    assert await what(session, "p") == held("p", is_expired=True)
    await append_ids(session, "a")
    assert (await head(session)).waiting == 0
    await place.clock.pass_time(10.0)
    assert await what(session, "p") is None


@waiting
async def test_the_expired_have_as_much_room_as_those_that_wait(limited: Make, place: Place) -> None:
    """Beyond that room, those that would be forgotten first are forgotten early."""
    store = await limited(Limits(waiting=2))
    await wait(store, hold("a", wait_s=4 * SHORT_S), hold("b", wait_s=4 * SHORT_S))
    await place.clock.pass_time(4.25 * SHORT_S)
    assert await wait(store, hold("c", wait_s=2 * SHORT_S), hold("d", wait_s=SHORT_S / 4)) == [None, None]
    await place.clock.pass_time(SHORT_S / 3)
    await append_ids(store, "e")
    assert await what(store, "d") is None
    assert [await what(store, id) for id in "ab"] == [held(id, is_expired=True) for id in "ab"]
    assert await what(store, "c") == Waiting("c", hold("c").blob)


@waiting
async def test_expired_predictions_make_room(limited: Make, place: Place) -> None:
    store = await limited(Limits(waiting=2))
    assert await wait(store, hold("long"), hold("short", wait_s=SHORT_S), hold("p")) == [None, None, Full()]
    await place.clock.pass_time(1.25 * SHORT_S)
    assert await wait(store, hold("p"), hold("q")) == [None, Full()]
    assert (await head(store)).waiting == 2


@waiting
async def test_what_was_held_last_may_expire_first(session: Store, place: Place) -> None:
    await wait(session, hold("long"), hold("short", wait_s=SHORT_S))
    await wait(session, hold("shorter", wait_s=SHORT_S / 4))
    await place.clock.pass_time(SHORT_S / 2)
    assert [getattr(await what(session, id), "is_expired", None) for id in ("long", "short")] == [False, False]
    await place.clock.pass_time(SHORT_S)
    await wait(session, hold("p"))
    assert (await head(session)).waiting == 2
    assert await what(session, "long") == held("long")


async def test_a_prediction_that_may_not_wait_is_not_kept_long(session: Store) -> None:
    assert await wait(session, hold("p", wait_s=0.0), hold("q", wait_s=-1.0)) == [None, None]
    await append_ids(session, "a")
    assert [await what(session, id) for id in "pq"] == [None, None]
    assert (await head(session)).waiting == 0


@waiting
async def test_an_expired_prediction_can_still_be_settled(session: Store, place: Place) -> None:
    await wait(session, hold("p", wait_s=SHORT_S), hold("q"))
    await place.clock.pass_time(1.25 * SHORT_S)
    await append_ids(session, "p")
    assert await what(session, "p") == Applied("p", b"answer to p")
    assert await counts(session) == (1, len(hold("q").blob))


@waiting
async def test_thousands_that_expired_together_are_forgotten_over_several_commits(session: Store, place: Place) -> None:
    for start in range(0, 2500, 500):
        await wait(session, *(hold(id, wait_s=SHORT_S) for id in ids_from(start, start + 499)))
    await place.clock.pass_time(2.5 * SHORT_S)
    for number in range(30):
        await wait(session, hold(f"late{number}"))
    assert (await head(session)).waiting == 30
    assert [await what(session, id) for id in ("r0", "r2499")] == [None, None]


# Remembering


async def test_the_latest_ids_are_remembered_up_to_a_number(limited: Make) -> None:
    store = await limited(Limits(remembered=3))
    await append_ids(store, "a", "b", "c", "d")
    await append_ids(store, "e")
    assert [await what(store, id) is not None for id in "abcde"] == [False, False, True, True, True]
    assert (await head(store)).remembered == 3
    await append_ids(store, "a")
    assert await what(store, "a") == Applied("a", b"answer to a")


async def test_the_latest_ids_are_remembered_up_to_so_many_bytes(limited: Make) -> None:
    store = await limited(Limits(remembered_bytes=1000))
    for id in "abc":
        await append(store, [entry((await head(store)).tip, id, answer=bytes(400))])
    assert [await what(store, id) is not None for id in "abc"] == [False, True, True]
    assert (await head(store)).remembered_bytes == 800
    await append(store, [entry((await head(store)).tip, "large", answer=bytes(1001))])
    found = await head(store)
    assert (found.remembered, found.remembered_bytes) == (0, 0)


@waiting
async def test_ids_are_remembered_for_so_long(limited: Make, place: Place) -> None:
    store = await limited(Limits(remembered_s=SHORT_S))
    await append_ids(store, "a")
    assert await what(store, "a") == Applied("a", b"answer to a")
    await place.clock.pass_time(1.25 * SHORT_S)
    assert await what(store, "a") is None
    await append_ids(store, "a", "b")
    assert await what(store, "a") == Applied("a", b"answer to a")
    assert (await head(store)).remembered == 2


@waiting
async def test_an_id_may_wait_again_when_it_is_forgotten(limited: Make, place: Place) -> None:
    store = await limited(Limits(remembered_s=SHORT_S))
    await append_ids(store, "a")
    await place.clock.pass_time(1.25 * SHORT_S)
    assert await wait(store, hold("a")) == [None]
    assert await what(store, "a") == held("a")
    await append_ids(store, "a")
    assert await what(store, "a") == Applied("a", b"answer to a")
    found = await head(store)
    assert (found.waiting, found.remembered, found.remembered_bytes) == (0, 1, len(b"answer to a"))


@waiting
async def test_thousands_of_ids_are_forgotten_over_several_commits(limited: Make, place: Place) -> None:
    store = await limited(Limits(remembered_s=SHORT_S))
    for start in range(0, 2500, 500):
        await append_ids(store, *ids_from(start, start + 499))
    await place.clock.pass_time(2.5 * SHORT_S)
    for number in range(30):
        await append_ids(store, f"late{number}")
    assert await what(store, "r0") is None
    assert (await head(store)).remembered <= 30


async def test_a_fresh_entry_is_refused_where_something_waits_under_its_id(session: Store) -> None:
    """A turn may settle a prediction of its own, but another prediction under the same id may already wait."""
    await wait(session, hold("p"), hold("gone"))
    assert await session.cancel(NAME, "gone")
    before = await head(session)
    fresh = [replace(one, is_fresh=True) for one in chain(FIRST, "a", "p")]
    assert await session.commit(NAME, FIRST, fresh, [hold("q")]) == held("p")
    expired = [replace(one, is_fresh=True) for one in chain(FIRST, "gone")]
    assert await session.commit(NAME, FIRST, expired) == held("gone", is_expired=True)
    assert await head(session) == before
    assert await what(session, "q") is None
    free = [replace(one, is_fresh=True) for one in chain(FIRST, "a", "b")]
    answer = await session.commit(NAME, FIRST, free, [hold("q")])
    assert outcomes_of(answer) == [None]
    assert await session.commit(NAME, FIRST, free, [hold("q")]) == answer
    assert (await read(session, FIRST)).entries == bare(free)
    again = [replace(entry(free[-1].tip, "a"), is_fresh=True)]
    assert await session.commit(NAME, free[-1].tip, again) == Applied("a", b"answer to a")
    assert await session.commit(NAME, FIRST, [replace(entry(FIRST, "p"), is_fresh=True)]) != held("p")


async def test_how_far_something_has_come_is_remembered_in_the_place_of_what_was(limited: Make) -> None:
    """While it advances, it stays among the newest, and it evicts what it passes."""
    store = await limited(Limits(remembered=3))
    tip = FIRST
    for number in range(6):
        (one,) = chain(tip, f"k{number}")
        progress = Applied("k", b"to %d" % number)
        assert isinstance(await store.commit(NAME, tip, [one], [], progress), Committed)
        assert await store.commit(NAME, tip, [one], [], progress) == Committed([], 0, 0)
        assert await what(store, "k") == progress
        tip = one.tip
    found = await head(store)
    assert (found.remembered, found.remembered_bytes) == (3, 2 * len(b"answer to k0") + len(b"to 5"))
    assert [await what(store, f"k{number}") is None for number in range(6)] == [True] * 4 + [False] * 2
    # A refused commit, or one without entries, leaves nothing remembered.
    assert await store.commit(NAME, tip, [], [hold("p")], Applied("k", b"of none")) == Committed([None], 1, 0)
    assert missed(await store.commit(NAME, FIRST, chain(FIRST, "z"), [], Applied("k", b"of none"))) is not None
    assert await what(store, "k") == Applied("k", b"to 5")
    entries = chain(tip, "x", "y", "z")
    assert isinstance(await store.commit(NAME, tip, entries), Committed)
    assert await what(store, "k") is None
