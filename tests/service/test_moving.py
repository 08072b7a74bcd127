"""Sessions that move between stores and names: whole, once, and wherever the mover dies."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from okl.errors import (
    SessionExists,
    SessionMoved,
    SessionMoving,
    SessionNotFound,
    StateCorrupt,
    StoreTimeout,
)
from service.archive.mover import move, rename, undo
from service.archive.parts import arrival_note
from service.archive.transport import export, import_file
from service.session.definition import Definition
from service.session.record import encode_record
from service.store.base import Gone, Head, Store, Tip
from service.store.moving import FOR_GOOD, Seal, aside
from tests.contract.store_calls import append, chain, entry, head
from tests.service.stored import FIRST, Died, Dying, Unexamined, filled, forget_leases, is_live, told

pytestmark = pytest.mark.anyio

NEXT = Tip(0, b"another digest..")


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
        # The same move with another address changes what clients are told.
        await move(source, target, "s", to="https://other.example")
        with pytest.raises(SessionMoved, match="other"):
            await source.commit("s", FIRST, [])
    assert not is_live(await redis.head("s"))
    tip = (await head(sqlite, "s")).tip
    await append(sqlite, chain(tip, "p", "q", "cancelled"), "s")
    assert ((await head(sqlite, "s")).waiting, (await head(sqlite, "s")).never_came) == (0, 1)


async def test_a_session_that_the_target_has_lost_continues_at_the_source(stores: tuple[Store, Store]) -> None:
    source, target = stores
    await filled(source)
    before = await told(source)
    await move(source, target, "s")
    with pytest.raises(SessionExists):
        await undo(source, target, "s")
    assert not is_live(await source.head("s"))
    await target.delete("s")
    assert (await undo(source, target, "s")).is_new
    assert await told(source) == before
    assert not (await undo(source, target, "s")).is_new  # it is open already
    assert (await move(source, target, "s")).is_new
    assert await told(target) == before


async def test_a_copy_that_is_still_arriving_is_not_opened_by_undoing_a_move(stores: tuple[Store, Store]) -> None:
    source, target = stores
    await filled(source)
    await source.seal("s", Seal("arriving", "x").note(), FOR_GOOD)
    with pytest.raises(SessionMoving):
        await undo(source, target, "s")
    with pytest.raises(SessionNotFound):
        await undo(target, source, "s")


@pytest.mark.parametrize("call", ["unload", "keep"])
async def test_a_target_that_loses_a_part_of_the_copy_does_not_open_it(stores: tuple[Store, Store], call: str) -> None:
    source, target = stores
    await filled(source)
    before = await told(source)
    lost, apply = 0, getattr(target, call)
    for lost in range(100):
        calls = itertools.count()

        async def forgetful(*given: Any, lost: int = lost, calls: itertools.count[int] = calls, **named: Any) -> bool:
            return True if next(calls) == lost else await apply(*given, **named)

        setattr(target, call, forgetful)
        try:
            await move(source, target, "s")
            break
        except (SessionMoving, StateCorrupt):
            assert await told(source) == before
            assert is_live(await source.head("s"))
            assert await target.head("s") == Gone()
    assert lost == (1 if call == "keep" else 6)
    assert await told(target) == before


async def test_a_copy_that_lost_a_part_before_it_was_opened_is_made_anew(stores: tuple[Store, Store]) -> None:
    source, target = stores
    await filled(source)
    before, unseal = await told(source), target.unseal

    async def dies(*given: Any) -> bool:
        raise Died

    target.unseal = dies  # type: ignore[method-assign]
    with pytest.raises(Died):
        await move(source, target, "s")
    target.unseal = unseal  # type: ignore[method-assign]
    token = Seal.of((await head(source, "s")).seal).token
    assert await target.seal("s", arrival_note(token, 2), FOR_GOOD, arrival_note(token))
    assert (await move(source, target, "s")).is_new
    assert await told(target) == before
    assert not is_live(await source.head("s"))


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


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("at_delete", [False, True], ids=["at a challenger", "at the end"])
async def test_a_name_that_another_takes_meanwhile_is_the_others(
    stores: tuple[Store, Store], which: int, at_delete: bool
) -> None:
    """Blue and green: `s` becomes `old`, and before that is done `next` becomes `s`."""
    store = stores[which]
    await filled(store)
    for name in ("next", "s~c", "next~d"):
        await store.create(name, encode_record(Definition(name), NEXT.digest), NEXT)
    delete, is_first = store.delete, True

    async def deleting(name: str, *given: Any, **told: Any) -> bool:
        nonlocal is_first
        if is_first and name == ("s" if at_delete else "s~c"):
            is_first = False
            await rename(store, "next", "s")
        return await delete(name, *given, **told)

    store.delete = deleting  # type: ignore[method-assign]
    assert (await rename(store, "s", "old")).round == 18
    tips = {one.name: one.tip for one in (await store.list(None, 10)).heads if not one.seal}
    assert tips.pop("old").round == 18
    assert tips == {"s": NEXT, "s~d": NEXT, "old~c": NEXT}


async def test_a_copy_whose_place_is_gone_leaves_the_session_where_it_was(stores: tuple[Store, Store]) -> None:
    source, target = stores
    await filled(source)
    before = await told(source)
    await target.create("s", b"other", NEXT)
    await target.seal("s", Seal("moved", "x").note(), FOR_GOOD)
    arrive = target.arrive

    async def too_late(*given: Any) -> None:
        await target.delete("s")
        await arrive(*given)

    target.arrive = too_late  # type: ignore[method-assign]
    with pytest.raises(SessionMoving):
        await move(source, target, "s")
    assert await told(source) == before
    assert is_live(await source.head("s"))
    assert [await target.head(name) for name in ("s", aside("s"))] == [Gone(), Gone()]


@pytest.mark.parametrize("which", [0, 1])
async def test_an_older_copy_that_takes_the_place_is_not_taken_for_the_session(
    stores: tuple[Store, Store], tmp_path: Path, which: int
) -> None:
    """A backup is imported where the session once was, just before its copy arrives there aside."""
    source, target = stores[1 - which], stores[which]
    await filled(target)
    await export(target, ["s"], tmp_path / "backup", lambda _: None)
    await move(target, source, "s")
    await append(source, [entry((await head(source, "s")).tip, "later")], "s")
    before, arrive = await told(source), target.arrive

    async def too_late(*given: Any) -> None:
        target.arrive = arrive  # type: ignore[method-assign]
        await import_file(target, tmp_path / "backup", lambda _: None, Unexamined)
        await arrive(*given)

    target.arrive = too_late  # type: ignore[method-assign]
    with pytest.raises(SessionMoving):
        await move(source, target, "s")
    assert is_live(await source.head("s"))
    assert await told(source) == before
    assert (await head(target, "s")).tip.round == 18
    assert await target.head(aside("s")) == Gone()


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
