"""The store contract, on every store: seals, checkpoints, and sessions that are exported and arrive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from okl.errors import ServiceError, SessionExists, SessionMoved, SessionMoving
from service.store.base import Applied, Full, Gone, Head, Limits, Store, Tip, Waiting, WaitingPage
from service.store.moving import FOR_GOOD, NOTE_BYTES, Checkpoint, Luggage, Seal, Whole, aside
from tests.contract.store_calls import (
    FIRST,
    NAME,
    OTHER,
    RECORD,
    STATE,
    SUMMARY,
    append,
    append_ids,
    chain,
    entry,
    head,
    hold,
    ids_from,
    read,
    wait,
    what,
)
from tests.contract.stores import Make, Place, on_stores

pytestmark = pytest.mark.anyio

HELD, OTHER_HELD = Seal("held", "one").note(), Seal("held", "two").note()
MOVED = Seal("moved", "one", "https://new.example").note()
ARRIVING = Seal("arriving", "one").note()
NEW = Tip(0, b"another digest..")


async def kept(store: Store, name: str = NAME) -> Sequence[Checkpoint]:
    found = await store.kept(name)
    assert not isinstance(found, Gone)
    return found


def writes(store: Store, tip: Tip) -> list[Callable[[], Awaitable[Any]]]:
    """All calls that would change the session."""
    return [
        lambda: store.commit(NAME, tip, [entry(tip, "late")]),
        lambda: store.commit(NAME, tip, [], [hold("late")]),
        lambda: store.commit(NAME, tip, []),
        lambda: store.cancel(NAME, "p"),
        lambda: store.rewind(NAME, tip, tip),
        lambda: store.replace(NAME, tip, RECORD, NEW, STATE),
        lambda: store.keep(NAME, FIRST.digest, "late", tip, STATE),
        lambda: store.drop(NAME, "kept"),
    ]


@pytest.fixture
async def full(session: Store) -> Store:
    """A session with data of every kind."""
    await wait(session, hold("p"), hold("q", blob=bytes(5000)), hold("gone", wait_s=0.0), hold("cancelled"))
    entries = await append_ids(session, *ids_from(0, 9))
    await session.snapshot(NAME, entries[6].tip, STATE)
    await append(session, [entry(entries[-1].tip, "many", count=7, blob=bytes(3000), answer=bytes(2000))])
    await append(session, [entry((await head(session)).tip, "silent", answer=None)])
    await session.cancel(NAME, "cancelled")
    await session.keep(NAME, FIRST.digest, "kept", entries[3].tip, bytes(range(256)) * 8000)
    await session.keep(NAME, FIRST.digest, "an other", entries[4].tip, b"")
    await session.summarize(NAME, entries[8].tip, b"summary")
    await session.told(NAME, entries[8].tip, 2)
    return session


# Seals


@pytest.mark.parametrize(
    ("note", "for_s", "error"),
    [(HELD, 3600.0, SessionMoving), (HELD, FOR_GOOD, SessionMoving), (MOVED, FOR_GOOD, SessionMoved)],
)
async def test_nothing_changes_a_sealed_session(
    full: Store, note: bytes, for_s: float, error: type[ServiceError]
) -> None:
    before, tip = await read(full), (await head(full)).tip
    assert await full.seal(NAME, note, for_s) is True
    for write in writes(full, tip):
        with pytest.raises(error):
            await write()
    found = await read(full)
    assert found == replace(before, head=replace(before.head, seal=note if for_s == FOR_GOOD else b""))
    assert [one.name for one in await kept(full)] == ["an other", "kept"]
    assert await full.unseal(NAME, OTHER_HELD) is False
    assert await full.unseal(NAME, note) is True
    assert await full.unseal(NAME, note) is True
    assert await read(full) == before
    for write in writes(full, tip)[:1]:
        await write()


async def test_who_is_told_where_it_went(session: Store) -> None:
    await session.seal(NAME, MOVED, FOR_GOOD)
    with pytest.raises(SessionMoved) as caught:
        await session.commit(NAME, FIRST, [])
    assert caught.value.extra == {"session": NAME, "location": "https://new.example"}


async def test_a_seal_for_a_while_lapses(session: Store, place: Place) -> None:
    assert await session.seal(NAME, HELD, 0.2) is True
    await place.clock.pass_time(0.3)
    assert await session.seal(NAME, HELD, 0.2, over=HELD) is False
    await append_ids(session, "a")
    assert await session.seal(NAME, OTHER_HELD, 10.0) is True


@on_stores(lambda case: case.has_manual_clock)
async def test_a_seal_for_a_while_is_no_longer_when_the_clock_is_set_back(full: Store, place: Place) -> None:
    await full.seal(NAME, HELD, 10.0)
    await place.clock.pass_time(-1800.0)
    assert await full.seal(NAME, OTHER_HELD, 10.0) is False
    await place.clock.pass_time(-1800.0)
    assert await full.seal(NAME, OTHER_HELD, 10.0, over=HELD) is False
    tip = (await head(full)).tip
    await full.commit(NAME, tip, [entry(tip, "next")])
    assert await full.unseal(NAME, OTHER_HELD) is True
    await full.seal(NAME, MOVED, FOR_GOOD)
    await place.clock.pass_time(-1e6)
    with pytest.raises(SessionMoved):
        await full.commit(NAME, (await head(full)).tip, [])


@on_stores(lambda case: case.has_manual_clock)
async def test_who_died_before_the_clock_was_set_back_keeps_nobody_from_deleting(session: Store, place: Place) -> None:
    await session.seal(NAME, HELD, 10.0)
    await place.clock.pass_time(-7200.0)
    assert await session.delete(NAME) is True


async def test_what_does_not_wait_is_cancelled_in_a_sealed_session_as_in_any(session: Store, place: Place) -> None:
    await wait(session, hold("p"), hold("gone", wait_s=0.0))
    await place.clock.pass_time(0.05)
    await session.seal(NAME, HELD, 60.0)
    assert [await session.cancel(NAME, id) for id in ("gone", "never made")] == [False, False]
    with pytest.raises(SessionMoving):
        await session.cancel(NAME, "p")


async def test_a_seal_gives_way_to_who_knows_it(session: Store) -> None:
    assert await session.seal(NAME, HELD, 60.0) is True
    assert await session.seal(NAME, HELD, 60.0) is True
    assert await session.seal(NAME, OTHER_HELD, 60.0) is False
    assert await session.seal(NAME, MOVED, FOR_GOOD, over=OTHER_HELD) is False
    assert await session.seal(NAME, HELD, 90.0, over=HELD) is True
    assert await session.seal(NAME, MOVED, FOR_GOOD, over=HELD) is True
    assert await session.seal(NAME, MOVED, FOR_GOOD, over=HELD) is True
    assert await session.seal(NAME, HELD, 60.0) is False
    assert (await head(session)).seal == MOVED
    assert await session.seal("nobody", HELD, 60.0) is False
    assert await session.unseal("nobody", HELD) is False
    with pytest.raises(ValueError, match="1024"):
        await session.seal(NAME, bytes(1025), 60.0)


async def test_only_what_is_sealed_for_good_can_be_deleted(session: Store) -> None:
    await session.seal(NAME, HELD, 60.0)
    with pytest.raises(SessionMoving):
        await session.delete(NAME)
    await session.seal(NAME, MOVED, FOR_GOOD, over=HELD)
    assert await session.delete(NAME) is True
    assert await session.head(NAME) == Gone()


async def test_remains_are_deleted_by_who_knows_them_while_nothing_takes_their_place(full: Store) -> None:
    whole = await whole_of(full)
    assert await full.delete(NAME, remains=MOVED) is False
    await full.seal(NAME, HELD, 60.0)
    assert await full.delete(NAME, remains=HELD) is False
    await full.seal(NAME, MOVED, FOR_GOOD, over=HELD)
    assert await full.delete(NAME, remains=Seal("moved", "two").note()) is False
    await full.arrive(aside(NAME), whole, ARRIVING)
    assert await full.delete(NAME, remains=MOVED) is False
    assert await full.unseal(NAME, ARRIVING) is True
    assert await full.delete(NAME, remains=MOVED) is False
    await full.seal(NAME, MOVED, FOR_GOOD)
    assert await full.delete(NAME, remains=MOVED) is True
    assert await full.head(NAME) == Gone()


# Checkpoints


async def test_states_are_kept_beside_the_session(session: Store, place: Place) -> None:
    (a,) = await append_ids(session, "a")
    before = await read(session)
    large = bytes(range(256)) * 10_000
    for name, blob in (("b", large), ("a", b""), ("c", STATE)):
        assert await session.keep(NAME, FIRST.digest, name, a.tip, blob) is True
    assert await session.keep(NAME, FIRST.digest, "c", FIRST, b"another") is True
    found = await kept(session)
    assert [one._replace(at=0.0) for one in found] == [
        Checkpoint("a", a.tip, 0.0, 0),
        Checkpoint("b", a.tip, 0.0, len(large)),
        Checkpoint("c", FIRST, 0.0, 7),
    ]
    assert all(place.clock.is_now(one.at) for one in found)
    assert [await session.kept_state(NAME, name) for name in "abcd"] == [b"", large, b"another", None]
    assert await session.drop(NAME, "b") is True
    assert await session.drop(NAME, "b") is False
    assert [one.name for one in await kept(session)] == ["a", "c"]
    assert await read(session) == before
    assert await session.keep(NAME, OTHER.digest, "d", a.tip, b"") is False
    assert await session.keep("nobody", FIRST.digest, "d", a.tip, b"") is False
    assert await session.kept("nobody") == Gone()
    assert await session.kept_state("nobody", "a") is None
    assert await session.drop("nobody", "a") is False


async def test_checkpoints_are_bounded(limited: Make) -> None:
    store = await limited(Limits(checkpoints=2, checkpoint_bytes=1000))
    assert await store.keep(NAME, FIRST.digest, "a", FIRST, bytes(600)) is True
    assert await store.keep(NAME, FIRST.digest, "b", FIRST, bytes(401)) == Full()
    assert await store.keep(NAME, FIRST.digest, "a", FIRST, bytes(1000)) is True
    assert await store.keep(NAME, FIRST.digest, "b", FIRST, b"") is True
    assert await store.keep(NAME, FIRST.digest, "c", FIRST, b"") == Full()
    assert await store.drop(NAME, "a") is True
    assert await store.keep(NAME, FIRST.digest, "c", FIRST, bytes(1000)) is True


async def test_checkpoints_go_with_their_session(full: Store, place: Place) -> None:
    await full.delete(NAME)
    assert await full.kept(NAME) == Gone()
    await full.create(NAME, RECORD, OTHER, summary=SUMMARY)
    assert await full.kept(NAME) == []
    await full.delete(NAME)
    await full.close()
    assert not place.residue()


async def test_nothing_of_a_checkpoint_that_was_replaced_or_dropped_is_left(session: Store, place: Place) -> None:
    for state in (bytes(3 << 20), STATE):
        assert await session.keep(NAME, FIRST.digest, "a", FIRST, state) is True
    assert await session.drop(NAME, "a") is True
    await session.delete(NAME)
    await session.close()
    assert not place.residue()


# Arrivals


async def moved(source: Store, target: Store, name: str, *, twice: bool = False) -> None:
    """Move a session as a mover does; `twice`: send each call again."""
    whole = await source.whole(NAME)
    assert isinstance(whole, Whole)
    pages: list[Luggage] = []
    while not pages or pages[-1].cursor is not None:
        page = await source.luggage(NAME, pages[-1].cursor if pages else None)
        assert isinstance(page, Luggage)
        assert all((item.expires_at == 0.0) == item.is_expired for item in page.held)
        pages.append(page)
    states = [(one, await source.kept_state(NAME, one.name)) for one in await kept(source)]
    for _ in range(1 + twice):
        await target.arrive(name, whole, ARRIVING)
    for _ in range(1 + twice):
        for first in range(0, len(whole.entries), 3):
            assert await target.unload(name, ARRIVING, whole.entries[first : first + 3], Luggage([], []))
        for page in pages:
            assert await target.unload(name, ARRIVING, [], page)
        for one, state in states:
            await target.keep(name, whole.first.digest, one.name, one.tip, state or b"", at=one.at, note=ARRIVING)
    assert await target.unseal(name, ARRIVING) is True


async def told(store: Store, name: str) -> list[Any]:
    """Everything that a caller can read of the session."""
    found = await head(store, name)
    ids = ["p", "q", "gone", "cancelled", "many", "silent", "nothing", *ids_from(0, 9)]
    whats = [await store.find(name, found.tip, id) for id in ids]
    checkpoints = await kept(store, name)
    states = [await store.kept_state(name, one.name) for one in checkpoints]
    reading, page = await read(store, name=name), await store.waiting(name, None, 10)
    assert isinstance(page, WaitingPage)
    return [
        replace(found, name=""),
        replace(reading, head=replace(reading.head, name="")),
        (await store.last(name, 100)),
        page.items,
        await store.count_waiting(name, [FOR_GOOD, 60.0]),
        whats,
        checkpoints,
        states,
    ]


@pytest.mark.parametrize("twice", [False, True])
async def test_a_session_arrives_with_all_that_it_has(full: Store, twice: bool) -> None:
    assert await full.seal(NAME, HELD, 600.0) is True
    await moved(full, full, "elsewhere", twice=twice)
    assert await full.unseal(NAME, HELD) is True
    assert await told(full, "elsewhere") == await told(full, NAME)
    tip = (await head(full)).tip
    for name in (NAME, "elsewhere"):
        assert await full.commit(name, tip, [entry(tip, "r3")]) == Applied("r3", b"answer to r3")
        await append(full, chain(tip, "p", "q", "cancelled"), name)
        found = await head(full, name)
        assert (found.waiting, found.never_came) == (0, 1)
        back = chain(tip, "p", "q")[-1].tip
        assert await full.rewind(name, found.tip, back) is True
        assert await what(full, "q", name) == Applied("q", b"answer to q")
        assert await what(full, "cancelled", name) is None
        assert await full.snapshot(name, back, b"later") is True
        at = (await head(full, name)).tip
        assert await full.replace(name, at, RECORD, NEW, STATE) is True


async def test_a_session_without_a_snapshot_arrives(session: Store) -> None:
    await append_ids(session, "a", "b")
    await moved(session, session, "elsewhere")
    assert await told(session, "elsewhere") == await told(session, NAME)
    await session.snapshot("elsewhere", (await head(session)).tip, STATE)


async def test_many_things_arrive(session: Store) -> None:
    for first in range(0, 5000, 500):
        ids = ids_from(first, first + 499)
        await wait(session, *(hold(f"w{id}") for id in ids))
        await append_ids(session, *ids)
    await session.seal(NAME, HELD, 600.0)
    await moved(session, session, "elsewhere")
    await session.unseal(NAME, HELD)
    here, there = await head(session), await head(session, "elsewhere")
    assert there == replace(here, name="elsewhere")
    assert (there.waiting, there.remembered) == (5000, 5000)
    assert await session.find("elsewhere", there.tip, "r4321") == await session.find(NAME, here.tip, "r4321")
    assert isinstance(await what(session, "wr1234", "elsewhere"), Waiting)


async def test_what_arrives_is_nobodys_until_it_is_opened(full: Store) -> None:
    whole = await full.whole(NAME)
    assert isinstance(whole, Whole)
    await full.arrive("elsewhere", whole, ARRIVING)
    with pytest.raises(SessionMoving):
        await full.commit("elsewhere", whole.head.tip, [])
    # Entries that have not arrived yet do not count as lost.
    for after in (None, whole.entries[0].tip):
        with pytest.raises(SessionMoving):
            await full.read("elsewhere", after)
    for part in ([], whole.entries[:-1]):
        assert await full.unload("elsewhere", ARRIVING, part, Luggage([], [])) is True
        for rounds in (1, 100):
            with pytest.raises(SessionMoving):
                await full.last("elsewhere", rounds)
    await full.arrive("elsewhere", whole, ARRIVING)
    assert (await head(full, "elsewhere")).seal == ARRIVING
    assert await full.unload("elsewhere", HELD, whole.entries, Luggage([], [])) is False
    # An open session is neither replaced nor extended.
    with pytest.raises(SessionExists):
        await full.arrive(NAME, whole, ARRIVING)
    assert await full.unload(NAME, ARRIVING, [], Luggage([], [])) is False
    # An arrival that was never opened may be replaced.
    other = Seal("arriving", "two").note()
    await full.arrive("elsewhere", replace(whole, entries=[]), other)
    assert await full.unload("elsewhere", ARRIVING, whole.entries, Luggage([], [])) is False
    assert await full.unload("elsewhere", other, whole.entries, Luggage([], [])) is True
    # The next part needs the note that this one leaves; the part itself may come again.
    later = Seal("arriving", "two", "1").note()
    for _ in "12":
        assert await full.unload("elsewhere", other, [], Luggage([], []), later) is True
    assert await full.unload("elsewhere", other, [], Luggage([], [])) is False
    assert await full.unseal("elsewhere", other) is False
    with pytest.raises(ValueError, match="note"):
        await full.unload("elsewhere", later, [], Luggage([], []), bytes(NOTE_BYTES + 1))
    assert await full.unseal("elsewhere", later) is True
    assert (await read(full, name="elsewhere")).entries == (await read(full)).entries
    assert await full.whole("nobody") == Gone()
    assert await full.luggage("nobody") == Gone()


async def test_nothing_of_an_arrival_that_is_replaced_is_left(full: Store) -> None:
    whole, luggage = await whole_of(full), await full.luggage(NAME)
    assert isinstance(luggage, Luggage)
    assert luggage.held
    await full.arrive("elsewhere", whole, ARRIVING)
    assert await full.unload("elsewhere", ARRIVING, whole.entries, luggage) is True
    assert await full.keep("elsewhere", whole.first.digest, "kept", whole.first, STATE, note=ARRIVING) is True
    await full.create("other", b"another record", OTHER)
    await full.arrive("elsewhere", await whole_of(full, "other"), ARRIVING)
    assert await full.unseal("elsewhere", ARRIVING) is True
    assert await told(full, "elsewhere") == await told(full, "other")


async def test_what_arrives_aside_takes_the_place_when_it_is_opened(full: Store) -> None:
    await full.create("other", RECORD, OTHER)
    await append(full, chain(OTHER, "a", "b"), "other")
    other = await whole_of(full, "other")
    await full.seal(NAME, MOVED, FOR_GOOD)
    before, counts = await told(full, NAME), [await full.count(), await full.count(NAME)]
    await full.arrive(aside(NAME), other, ARRIVING)
    assert await full.unload(aside(NAME), ARRIVING, other.entries, Luggage([], []))
    assert await full.keep(aside(NAME), other.first.digest, "new", other.first, STATE, note=ARRIVING) is True
    # The arrival is invisible, and the stored data has not changed.
    assert [await full.count(), await full.count(NAME)] == counts
    assert {one.name for one in (await full.list(None, 10)).heads} == {"other", NAME}
    assert await told(full, NAME) == before
    assert await full.unseal(NAME, Seal("arriving", "two").note()) is False
    for _ in range(2):
        assert await full.unseal(NAME, ARRIVING) is True
        assert await full.head(aside(NAME)) == Gone()
        assert ((await head(full)).tip, (await head(full)).seal) == (other.head.tip, b"")
        assert [one.name for one in await kept(full, NAME)] == ["new"]
    assert (await whole_of(full)).entries == other.entries
    assert await what(full, "p") is None
    following = chain(other.head.tip, "next")
    await append(full, following)
    assert await full.snapshot(NAME, following[-1].tip, STATE) is True


async def test_what_is_aside_takes_no_open_place_and_goes_with_it(place: Place, full: Store) -> None:
    whole = await whole_of(full)
    await full.arrive(aside(NAME), whole, ARRIVING)
    assert await full.unseal(NAME, ARRIVING) is False
    assert (await head(full)).waiting == whole.head.waiting
    assert isinstance(await full.head(aside(NAME)), Head)
    assert await full.delete(NAME) is True
    assert await full.head(aside(NAME)) == Gone()
    await full.close()
    assert not place.residue()


async def whole_of(store: Store, name: str = NAME) -> Whole:
    found = await store.whole(name)
    assert isinstance(found, Whole)
    return found
