"""The store contract, on every store: listing, counting and cancelling holds, and counting truths that never came."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from service.store.base import (
    EDGES,
    PAGE_BYTES,
    PAGE_ITEMS,
    Applied,
    Committed,
    Full,
    Gone,
    Limits,
    Store,
    Waiting,
    WaitingItem,
    WaitingPage,
)
from tests.contract.store_calls import (
    FIRST,
    NAME,
    append_ids,
    head,
    hold,
    ids_from,
    wait,
    what,
)
from tests.contract.stores import Make, Place, on_stores

pytestmark = pytest.mark.anyio

SHORT_S = 0.5
"""Long enough that a test under load is at its next line before it is over."""

timed = on_stores(lambda case: not case.is_cluster)


async def page(store: Store, after: str | None = None, limit: int = 1000) -> WaitingPage:
    found = await store.waiting(NAME, after, limit)
    assert isinstance(found, WaitingPage)
    return found


async def pages(store: Store, limit: int) -> Sequence[Sequence[str]]:
    """The ids on each page."""
    found = [await page(store, None, limit)]
    while found[-1].cursor is not None:
        found.append(await page(store, found[-1].cursor, limit))
    return [[item.id for item in one.items] for one in found]


async def never_came(store: Store) -> int:
    return (await head(store)).never_came


# Listed


async def test_what_expires_first_is_listed_first(session: Store, place: Place) -> None:
    assert await page(session) == WaitingPage([], None, (await page(session)).now) or not place.case.has_manual_clock
    waits = {"day": 86_400.0, "second": 60.0, "hour": 3600.0, "large": 7200.0}
    blobs = {id: bytes(9000) if id == "large" else id.encode() for id in waits}
    for id, wait_s in waits.items():
        await wait(session, hold(id, wait_s=wait_s, blob=blobs[id]))
    found = await page(session)
    assert place.clock.is_now(found.now)
    assert [item.id for item in found.items] == ["second", "hour", "large", "day"]
    assert [item.blob for item in found.items] == [blobs[item.id] for item in found.items]
    for item in found.items:
        assert abs(item.expires_at - found.now - waits[item.id]) < 30.0
    assert found.cursor is None
    if place.case.has_manual_clock:
        assert found.items[0] == WaitingItem("second", b"second", found.now + 60.0)


@pytest.mark.parametrize("limit", [1, 2, 7, 40, 41])
async def test_what_expires_together_is_listed_by_id(session: Store, limit: int) -> None:
    """All ids of one commit expire at the same moment; they are ordered by their bytes."""
    ids = ["a", "a-", "a.1", "ab", "B", "é", "z", "Z", "\x00", "\U0001f600", "\uffff", *ids_from(1, 29)]
    assert await wait(session, *map(hold, ids)) == [None] * 40
    found = await pages(session, limit)
    assert [id for ids in found for id in ids] == sorted(ids, key=str.encode)
    assert [len(ids) for ids in found] == [limit] * (40 // limit) + ([40 % limit] if 40 % limit else [])


@pytest.mark.parametrize("limit", [1, 3, 8])
async def test_nothing_that_stays_is_left_out_or_listed_twice(session: Store, limit: int) -> None:
    ids = ids_from(100, 139)
    await wait(session, *map(hold, ids[:20]))
    await wait(session, *map(hold, ids[20:]))
    leaving, seen, cursor = set(ids[::3]), [], None
    while True:
        found = await page(session, cursor, limit)
        seen += [item.id for item in found.items]
        if found.cursor is None:
            break
        cursor = found.cursor
        # The hold at the cursor and one that is not listed yet are removed; others are added.
        last = found.items[-1].id
        if last in leaving:
            await append_ids(session, last)
        later = [id for id in sorted(leaving) if id > last]
        if later and await what(session, later[0]) == Waiting(later[0], hold(later[0]).blob):
            assert await session.cancel(NAME, later[0]) is True
        if last in ids:
            await wait(session, hold(f"before {last}", wait_s=60.0), hold(f"after {last}", wait_s=9000.0))
    assert len(seen) == len(set(seen))
    assert [id for id in seen if id in ids and id not in leaving] == [id for id in ids if id not in leaving]


async def test_a_page_has_a_bound_in_number_and_in_bytes(session: Store) -> None:
    blob = bytes(PAGE_BYTES // 2)
    await wait(session, *(hold(id, blob=blob) for id in "abc"))
    await wait(session, hold("small"), hold("t", blob=bytes(PAGE_BYTES + 1)), hold("u", blob=b""))
    assert await pages(session, 100) == [["a", "b"], ["c", "small"], ["t"], ["u"]]
    for start in (1000, 3000):
        await wait(session, *(hold(id, blob=b"", wait_s=9000.0) for id in ids_from(start, start + 749)))
    assert [len(ids) for ids in (await pages(session, 10**9))[3:]] == [PAGE_ITEMS, 501]


async def test_pages_and_counts_of_no_session(store: Store) -> None:
    assert await store.waiting(NAME, None, 10) == Gone()
    assert await store.count_waiting(NAME, [1.0]) == Gone()
    assert await store.cancel(NAME, "p") is False


@pytest.mark.parametrize("cursor", ["", "p", ":p", "p:1", "nan:p", "inf:p", "1e999:p", "1.0:\ud800"])
async def test_what_is_no_cursor_is_the_callers_mistake(session: Store, cursor: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the message of float is good enough
        await session.waiting(NAME, cursor, 10)


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_page_of_nothing_is_the_callers_mistake(session: Store, limit: int) -> None:
    with pytest.raises(ValueError, match="page"):
        await session.waiting(NAME, None, limit)


# Counted


async def test_what_waits_is_counted_by_when_it_expires(session: Store) -> None:
    await wait(session, *(hold(id, wait_s=1000.0) for id in ids_from(1, 5)))
    await wait(session, *(hold(id, wait_s=5000.0) for id in ids_from(6, 8)), hold("far", wait_s=1e12))
    edges = [math.inf, 100.0, 2000.0, 2000.0, 900.0, 6000.0, -5.0, 0.0, -math.inf]
    assert list(await counted(session, edges)) == [9, 0, 5, 5, 0, 8, 0, 0, 0]
    assert list(await counted(session, [])) == []
    assert list(await counted(session, [2000.0] * EDGES)) == [5] * EDGES


async def counted(store: Store, edges: Sequence[float]) -> Sequence[int]:
    found = await store.count_waiting(NAME, edges)
    assert not isinstance(found, Gone)
    return found


@pytest.mark.parametrize("edges", [[1.0] * (EDGES + 1), [math.nan], [1.0, math.nan]])
async def test_edges_that_are_none_are_the_callers_mistake(session: Store, edges: list[float]) -> None:
    with pytest.raises(ValueError, match="seconds"):
        await session.count_waiting(NAME, edges)


@on_stores(lambda case: case.has_manual_clock)
async def test_the_edges_of_a_count(session: Store, place: Place) -> None:
    """A hold that expires exactly at the edge counts as within it; one that expires now no longer waits."""
    await wait(session, hold("p", wait_s=10.0), hold("q", wait_s=20.0))
    assert list(await counted(session, [9.5, 10.0, 19.5, 20.0])) == [0, 1, 1, 2]
    await place.clock.pass_time(10.0)
    assert list(await counted(session, [0.0, 9.5, 10.0])) == [0, 0, 1]
    assert [item.id for item in (await page(session)).items] == ["q"]


@timed
async def test_what_has_expired_is_neither_listed_nor_counted(session: Store, place: Place) -> None:
    await wait(session, hold("p", wait_s=SHORT_S), hold("q"), hold("r"))
    first = await page(session, None, 1)
    assert [item.id for item in first.items] == ["p"]
    await place.clock.pass_time(1.25 * SHORT_S)
    assert [item.id for item in (await page(session)).items] == ["q", "r"]
    assert [item.id for item in (await page(session, first.cursor)).items] == ["q", "r"]
    assert list(await counted(session, [math.inf])) == [2]
    # The head is as of the last commit: due holds count as waiting until the next commit.
    found = await head(session)
    assert (found.waiting, found.never_came) == (3, 0)


# Cancelled


async def test_a_cancelled_prediction_has_expired(session: Store) -> None:
    await wait(session, hold("p"), hold("q", blob=bytes(5000)))
    assert await session.cancel(NAME, "q") is True
    assert await what(session, "q") == Waiting("q", bytes(5000), is_expired=True)
    assert await wait(session, hold("q")) == [Waiting("q", bytes(5000), is_expired=True)]
    assert [item.id for item in (await page(session)).items] == ["p"]
    assert list(await counted(session, [math.inf])) == [1]
    found = await head(session)
    assert (found.waiting, found.waiting_bytes, found.never_came) == (1, len(hold("p").blob), 1)
    assert await session.cancel(NAME, "q") is False
    assert await never_came(session) == 1


async def test_only_what_waits_is_cancelled(session: Store) -> None:
    await wait(session, hold("p"))
    await append_ids(session, "p", "a")
    before = await head(session)
    for id in ("p", "a", "never made", ""):
        assert await session.cancel(NAME, id) is False
    assert await head(session) == before
    assert await what(session, "p") == Applied("p", b"answer to p")


async def test_the_truth_of_a_cancelled_prediction_may_come_after_all(session: Store) -> None:
    await wait(session, hold("p"), hold("q"))
    await session.cancel(NAME, "p")
    await session.cancel(NAME, "q")
    assert await never_came(session) == 2
    await append_ids(session, "p")
    assert await what(session, "p") == Applied("p", b"answer to p")
    assert (await head(session)).waiting == 0
    assert await never_came(session) == 1


async def test_to_cancel_makes_room(limited: Make) -> None:
    store = await limited(Limits(waiting=2, waiting_bytes=1000))
    assert await wait(store, hold("p", blob=bytes(900)), hold("q", blob=b""), hold("r", blob=b"")) == [
        None,
        None,
        Full(),
    ]
    assert await store.cancel(NAME, "p") is True
    assert await wait(store, hold("r", blob=bytes(1000)), hold("s", blob=b"")) == [None, Full()]


async def test_the_cancelled_have_as_much_room_as_those_that_wait(limited: Make, place: Place) -> None:
    store = await limited(Limits(waiting=3))
    for number in range(4):
        ids = ids_from(10 * number, 10 * number + 2)
        # Later predictions wait longer and are remembered longer.
        assert await wait(store, *(hold(id, wait_s=1000.0 + 100.0 * number) for id in ids)) == [None] * 3
        for id in ids:
            assert await store.cancel(NAME, id) is True
    known = [id for id in ids_from(0, 32) if await what(store, id) is not None]
    assert known == ids_from(30, 32)
    assert await never_came(store) == 12


@timed
async def test_a_cancelled_prediction_is_remembered_for_as_long_as_it_was_to_wait(session: Store, place: Place) -> None:
    await wait(session, hold("p", wait_s=2 * SHORT_S), hold("q"))
    await session.cancel(NAME, "p")
    await place.clock.pass_time(SHORT_S)
    assert await what(session, "p") == Waiting("p", hold("p").blob, is_expired=True)
    await place.clock.pass_time(1.5 * SHORT_S)
    assert await what(session, "p") is None
    assert await wait(session, hold("p")) == [None]
    assert (await head(session)).waiting == 2
    assert await never_came(session) == 1


# What never came


@timed
async def test_what_expires_is_counted_when_a_commit_sweeps_it(session: Store, place: Place) -> None:
    await wait(session, hold("p", wait_s=SHORT_S), hold("q", wait_s=SHORT_S), hold("r"))
    await place.clock.pass_time(1.25 * SHORT_S)
    assert await never_came(session) == 0
    assert await session.commit(NAME, FIRST, []) == Committed([], 3, 0)
    assert await session.commit(NAME, FIRST, [], [hold("s")]) == Committed([None], 2, 2)
    assert await never_came(session) == 2
    (p,) = await append_ids(session, "p")
    assert await session.commit(NAME, p.tip, []) == Committed([], 2, 1)
    await place.clock.pass_time(SHORT_S)
    # The other prediction is forgotten, but its truth still counts as never come.
    await append_ids(session, "q")
    assert await never_came(session) == 1


@timed
async def test_the_truth_of_what_is_due_comes_just_in_time(session: Store, place: Place) -> None:
    await wait(session, hold("p", wait_s=SHORT_S))
    await place.clock.pass_time(1.25 * SHORT_S)
    await append_ids(session, "p")
    assert await never_came(session) == 0


async def test_a_prediction_that_may_not_wait_never_comes(session: Store) -> None:
    """The same commit uses its id again."""
    answer = await session.commit(NAME, FIRST, [], [hold("p", wait_s=0.0), hold("p", wait_s=0.0), hold("p")])
    assert answer == Committed([None] * 3, 1, 2)
    assert await never_came(session) == 2


async def test_a_commit_tells_how_many_wait(session: Store) -> None:
    assert await session.commit(NAME, FIRST, []) == Committed([], 0, 0)
    assert await session.commit(NAME, FIRST, [], [hold("p"), hold("q")]) == Committed([None, None], 2, 0)
    await session.cancel(NAME, "q")
    assert await session.commit(NAME, FIRST, [], [hold("p")]) == Committed([None], 1, 1)
    entries = await append_ids(session, "p")
    assert await session.commit(NAME, FIRST, entries) == Committed([], 0, 1)
    assert await session.commit(NAME, entries[-1].tip, []) == Committed([], 0, 1)
