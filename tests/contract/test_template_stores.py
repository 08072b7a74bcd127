"""The contract of every template store, on SQLite, Redis and a Redis Cluster, and what it needs of all stores."""

from __future__ import annotations

import pytest

from okl.errors import LimitReached
from service.store import redis_templates, sqlite_templates
from service.store.base import DIGEST_BYTES, Hold, Store, Tip
from service.store.template_store import TEMPLATE_BYTES, KeepsTemplates, TemplateRecords, TemplateStore
from tests.contract.stores import Place, on_stores

pytestmark = pytest.mark.anyio
kept = on_stores(lambda case: case.is_shared)
FIRST = Tip(0, bytes(DIGEST_BYTES))


def of(store: Store) -> TemplateStore:
    assert isinstance(store, KeepsTemplates)
    return store.templates


@kept
async def test_a_new_store_never_had_a_template(store: Store) -> None:
    templates = of(store)
    assert await templates.read("") is None
    assert not await templates.drop("a", "v1")
    assert await templates.read("") is None


@kept
async def test_a_template_takes_the_place_of_the_one_of_its_name(store: Store) -> None:
    templates = of(store)
    await templates.put("a", b"\x00one", "v1")
    await templates.put("b", b"two", "v2")
    await templates.put("a", b"three", "v3")
    assert await templates.read("") == TemplateRecords("v3", {"a": b"three", "b": b"two"})
    assert await templates.read("v3") is None
    assert await templates.drop("a", "v4")
    assert not await templates.drop("a", "v5")
    assert await templates.read("v3") == TemplateRecords("v4", {"b": b"two"})


@kept
async def test_another_store_on_the_same_place_sees_the_templates(place: Place, store: Store) -> None:
    await of(store).put("a", b"one", "v1")
    other = place.make()
    await other.open()
    assert await of(other).read("") == TemplateRecords("v1", {"a": b"one"})
    await other.close()


@kept
async def test_templates_and_their_records_are_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sqlite_templates, redis_templates):
        monkeypatch.setattr(module, "MOST_TEMPLATES", 2)
    templates = of(store)
    with pytest.raises(ValueError, match="at most"):
        await templates.put("a", bytes(TEMPLATE_BYTES + 1), "v")
    await templates.put("a", bytes(TEMPLATE_BYTES), "v1")
    await templates.put("b", b"b", "v2")
    with pytest.raises(LimitReached):
        await templates.put("c", b"c", "v3")
    await templates.put("b", b"again", "v4")
    await templates.drop("a", "v5")
    await templates.put("c", b"c", "v6")


@kept
async def test_templates_are_no_sessions(store: Store) -> None:
    await of(store).put("a", b"one", "v1")
    assert await store.count() == 0
    assert (await store.list(None, 10)).heads == []


# -- of all stores ----------------------------------------------------------------------------------------------------


async def test_sessions_are_counted_by_how_their_names_begin(store: Store) -> None:
    for name in ("clicks", "clicks.", "clicks.a", "clicks.b~c", "clicks/a", "clicksz", "other", "~"):
        await store.create(name, b"record", FIRST)
    assert await store.count("clicks.") == 3
    assert await store.count("clicks") == 6
    assert await store.count("~") == 1
    assert await store.count("nothing") == 0
    assert await store.count() == 8


async def test_a_session_at_which_something_waits_may_be_left_there(store: Store) -> None:
    await store.create("s", b"record", FIRST)
    await store.commit("s", FIRST, [], [Hold("v1", b"x", 60.0)])
    assert not await store.delete("s", FIRST, unless_waiting=True)
    await store.cancel("s", "v1")
    assert not await store.delete("s", Tip(1, bytes(DIGEST_BYTES)), unless_waiting=True)
    assert await store.delete("s", FIRST, unless_waiting=True)
    assert not await store.delete("s", FIRST, unless_waiting=True)


async def test_what_waits_keeps_no_session_that_is_to_be_deleted_all_the_same(store: Store) -> None:
    await store.create("s", b"record", FIRST)
    await store.commit("s", FIRST, [], [Hold("v1", b"x", 60.0)])
    assert await store.delete("s", FIRST)
