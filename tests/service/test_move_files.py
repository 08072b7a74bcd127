"""Sessions that move through files: whole, once, wherever the mover dies, and never from a file that is damaged."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from okl.errors import (
    DamagedArchive,
    SessionFollows,
    SessionNotFound,
    StoreCorrupt,
    StoreTimeout,
)
from service.archive.file import MAGIC, ArchiveReader, ArchiveWriter, sessions_in
from service.archive.mover import move
from service.archive.transport import Carried, export, import_file, names_in
from service.store.base import Gone, Hold, Store, Tip
from service.store.moving import FOR_GOOD, Seal, aside
from tests.contract.store_calls import append, chain, head
from tests.service.stored import Died, Dying, Unexamined, filled, forget_leases, is_live, told
from tests.service.worker import Call, Watched

pytestmark = pytest.mark.anyio


async def exported(store: Store, path: Path, *names: str) -> list[Carried]:
    found: list[Carried] = []
    await export(store, names or await names_in(store), path, found.append)
    return found


async def imported(store: Store, path: Path) -> list[Carried]:
    found: list[Carried] = []
    await import_file(store, path, found.append, Unexamined)
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


@pytest.mark.parametrize("which", [0, 1])
async def test_both_stores_write_the_same_bytes(stores: tuple[Store, Store], tmp_path: Path, which: int) -> None:
    """Also of predictions that wait, were cancelled, or have expired."""
    first, second = stores[which], stores[1 - which]
    await filled(first)
    tip = (await head(first, "s")).tip
    holds = [
        Hold(f"{what}{i}", b"asked", wait_s)
        for what, wait_s in (("x", 0.0), ("w", 0.3), ("c", 7e4 / 3))
        for i in range(9)
    ]
    await first.commit("s", tip, [], holds)
    for i in range(9):
        assert await first.cancel("s", f"c{i}")
    await exported(first, tmp_path / "one")
    await imported(second, tmp_path / "one")
    await exported(second, tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


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
    # It may have died later in a session that is smaller by now.
    with part.open("ab") as file:
        file.write(bytes(8 << 20))
    found = await exported(store, path)
    assert [one.is_new for one in found] == [name not in whole for name in "abc"]
    assert [one.trouble for one in await imported(target, path)] == [None] * 3
    for name in "abc":
        assert await told(target, name) == await told(store, name)


@pytest.mark.parametrize("which", [0, 1])
async def test_an_export_goes_on_after_a_session_that_cannot_be_read(
    stores: tuple[Store, Store], tmp_path: Path, which: int
) -> None:
    source, target = stores[which], stores[1 - which]
    for name in "abc":
        await filled(source, name)
    watched = Watched(source)

    async def fail(call: Call) -> None:
        # The first part of it has been written.
        if call.method == "luggage" and call.arguments[0] == "b":
            raise StoreCorrupt("a page is damaged")

    watched.before = fail
    path = tmp_path / "all"
    found = await exported(watched.as_store, path)
    assert found == [
        Carried("a", 18),
        Carried("b", trouble=f"{StoreCorrupt.title}: a page is damaged"),
        Carried("c", 18),
    ]
    assert is_live(await source.head("b"))
    assert await imported(target, path) == [Carried("a", 18), Carried("c", 18)]
    await append(source, chain((await head(source, "a")).tip, "later"), "a")
    watched.work()
    assert await exported(watched.as_store, path) == [Carried("a", 19), Carried("b", 18), Carried("c", 18)]


async def test_an_export_is_interrupted_by_a_store_that_does_not_answer(
    stores: tuple[Store, Store], tmp_path: Path
) -> None:
    store = stores[0]
    for name in "ab":
        await filled(store, name)
    watched = Watched(store)

    async def fail(call: Call) -> None:
        if call.arguments[0] == "b":
            raise StoreTimeout("no answer")

    watched.before = fail
    with pytest.raises(StoreTimeout):
        await exported(watched.as_store, tmp_path / "all", "a", "b")
    assert not (tmp_path / "all").exists()
    assert await exported(store, tmp_path / "all") == [Carried("a", 18, is_new=False), Carried("b", 18)]
    folder = tmp_path / "none"
    folder.mkdir()
    with pytest.raises(StoreTimeout):
        await exported(watched.as_store, folder / "all", "b")
    folder.rmdir()  # Nothing was left in it.


async def test_a_session_deleted_while_others_are_exported_may_be_missing(
    stores: tuple[Store, Store], tmp_path: Path
) -> None:
    store = stores[0]
    await filled(store)
    found: list[Carried] = []
    await export(store, ["deleted", "s"], tmp_path / "all", found.append, missing_ok=True)
    assert found == [Carried("s", 18)]
    await export(store, ["deleted"], tmp_path / "none", found.append, missing_ok=True)
    assert await imported(stores[1], tmp_path / "none") == []


async def test_an_export_waits_for_the_seal_of_one_that_was_killed(stores: tuple[Store, Store], tmp_path: Path) -> None:
    store = stores[0]
    await filled(store)
    await store.seal("s", Seal("held", "killed").note(), 0.5)
    (found,) = await exported(store, tmp_path / "file", "s")
    assert found.is_new
    assert is_live(await store.head("s"))


@pytest.mark.parametrize("which", [0, 1])
async def test_a_session_whose_seal_lapsed_while_it_was_read_is_left_out(
    stores: tuple[Store, Store], tmp_path: Path, which: int
) -> None:
    """Its parts may be of different rounds."""
    store = stores[which]
    for name in "st":
        await filled(store, name)
    watched = Watched(store)

    async def lapse(call: Call) -> None:
        if call.method == "luggage" and call.arguments[0] == "s":
            await forget_leases(store)

    watched.before = lapse
    lapsed, whole = await exported(watched.as_store, tmp_path / "all")
    assert "is being copied by another" in str(lapsed.trouble)
    assert whole == Carried("t", 18)
    assert await imported(stores[1 - which], tmp_path / "all") == [whole]


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
            await import_file(dying, tmp_path / "all", lambda _: None, Unexamined)  # type: ignore[arg-type]
            break
        except Died:
            pass
        for name in "ab":
            if is_live(await target.head(name)):
                assert await told(target, name) == before["ab".index(name)]
    assert number > 8
    assert [await told(target, name) for name in "ab"] == before


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("which", [0, 1])
async def test_what_has_moved_away_stays_until_another_is_whole(
    stores: tuple[Store, Store], tmp_path: Path, which: int, *, is_after: bool
) -> None:
    """Wherever the importer dies."""
    target, other = stores[which], stores[1 - which]
    await filled(target)
    await exported(target, tmp_path / "one")
    await append(target, chain((await head(target, "s")).tip, "later"), "s")
    await move(target, other, "s", to="https://new.example")
    before = await told(target)
    for number in itertools.count():
        dying = Dying(target, [number], is_after=is_after, count=itertools.count())
        try:
            await import_file(dying, tmp_path / "one", lambda _: None, Unexamined)  # type: ignore[arg-type]
            break
        except Died:
            pass
        if not is_live(await target.head("s")):
            assert await told(target) == before
            assert [one.name for one in (await target.list(None, 10)).heads] == ["s"]
            continue
        break
    assert number > 8
    assert is_live(await target.head("s"))
    assert ((await head(target, "s")).tip.round, (await head(other, "s")).tip.round) == (18, 19)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("has_moved", [False, True])
@pytest.mark.parametrize("call", ["arrive", "unload", "unseal"])
async def test_a_file_that_is_imported_twice_at_once_is_there_once(
    stores: tuple[Store, Store], tmp_path: Path, which: int, call: str, *, has_moved: bool
) -> None:
    """The second import begins and ends before this call of the first."""
    source, target = stores[1 - which], stores[which]
    await filled(source)
    await exported(source, tmp_path / "file")
    before = await told(source)
    if has_moved:
        await filled(target)
        await target.seal("s", Seal("moved", "x").note(), FOR_GOOD)
    second: list[Carried] = []
    watched = Watched(target)

    async def import_again(one: Call) -> None:
        if one.method == call and not second:
            second.extend(await imported(target, tmp_path / "file"))

    watched.before = import_again
    [first] = await imported(watched.as_store, tmp_path / "file")
    # To open what is open already succeeds, too: the reply to an earlier attempt may have been lost.
    assert first == Carried("s", 18, is_new=call == "unseal")
    assert second == [Carried("s", 18)]
    assert await told(target) == before
    assert await target.head(aside("s")) == Gone()


@pytest.mark.parametrize("which", [0, 1])
async def test_an_import_that_fails_leaves_what_has_moved_away_as_it_was(
    stores: tuple[Store, Store], tmp_path: Path, which: int
) -> None:
    target, other = stores[which], stores[1 - which]
    await filled(target)
    await exported(target, tmp_path / "good")
    await move(target, other, "s", to="https://new.example")
    before = await told(target)
    good = (tmp_path / "good").read_bytes()
    for place in range(100, len(good), len(good) // 7):
        (tmp_path / "bad").write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(DamagedArchive):
            await imported(target, tmp_path / "bad")
        assert await told(target) == before
    for failing in ("arrive", "unload", "keep", "whole", "unseal"):
        watched = Watched(target)
        watched.fail(StoreTimeout("no answer"), failing)
        (found,) = await imported(watched.as_store, tmp_path / "good")
        assert "no answer" in (found.trouble or "")
        assert await told(target) == before
        # It may have been the reply alone that got lost.
        assert isinstance(await target.head(aside("s")), Gone) or failing == "unseal"
    (found,) = await imported(target, tmp_path / "good")
    assert found == Carried("s", 18)


async def test_a_damaged_file_adds_no_damaged_session(stores: tuple[Store, Store], tmp_path: Path) -> None:
    store, target = stores
    for name in "ab":
        await filled(store, name)
    await exported(store, tmp_path / "good")
    good = (tmp_path / "good").read_bytes()
    damages = [good[:cut] for cut in range(1, len(good), len(good) // 13)]
    for place in range(0, len(good), len(good) // 19):
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
        (b"something else", "is not an okl archive"),
    ):
        (tmp_path / "bad").write_bytes(bad)
        with pytest.raises(DamagedArchive, match=told_of):
            await imported(target, tmp_path / "bad")
    await filled(store, "no/name")
    await exported(store, tmp_path / "named", "no/name")
    with pytest.raises(DamagedArchive, match="a session with an invalid name"):
        await imported(target, tmp_path / "named")
    assert await names_in(target) == ["s"]


class Longer(bytes):
    """Bytes that claim to be one more."""

    def __len__(self) -> int:
        return super().__len__() + 1


async def test_blobs_of_other_sizes_than_the_document_says_are_damage(
    stores: tuple[Store, Store], tmp_path: Path
) -> None:
    await filled(stores[0])
    await exported(stores[0], tmp_path / "good")
    with (tmp_path / "good").open("rb") as file, (tmp_path / "bad").open("wb") as bad:
        begun = next(ArchiveReader(file, "good").frames())
        ArchiveWriter(bad).write(begun._replace(blobs=[Longer(begun.blobs[0]), *begun.blobs[1:]]))
    with pytest.raises(DamagedArchive, match="the sizes of its blobs do not match"):
        await imported(stores[1], tmp_path / "bad")


@pytest.mark.parametrize(("length", "size"), [(100, 1 << 40), (64 << 20, 100)])
async def test_a_file_with_holes_is_not_read_into_memory(
    stores: tuple[Store, Store], tmp_path: Path, length: int, size: int
) -> None:
    with (tmp_path / "holes").open("wb") as file:
        file.write(MAGIC + struct.pack("<4sIQ", b"SESS", length, size))
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
    (found,) = await exported(store, tmp_path / "two", "nobody")
    assert SessionNotFound.title in (found.trouble or "")
    assert not (tmp_path / "two").exists()


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
