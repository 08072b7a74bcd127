"""Any sequence of operations is answered alike by a real store and by the model, and leaves the same behind."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import service.store.redis
import service.store.sqlite_tables
from service.errors import SessionExists
from service.store.base import Event, Gone, Head, Store, Waiting, open_store
from tests.properties.store_model import StoreModel

# Small enough that a short run of operations goes past them.
TAIL_EVENTS, APPLIED_KEPT = 2, 3
NAMES, UIDS, IDS = ("a", "b"), ("uid-1", "uid-2"), ("p", "q", "r", "s", "t", "u")

Call = Callable[[Any], Any]


@dataclass(frozen=True)
class Operation:
    """`distance` is how far from the session's round the operation is aimed."""

    kind: str
    name: str
    uid: str
    distance: int
    elapsed: float
    ids: tuple[str | None, ...]
    counts: tuple[int, ...]
    blob: bytes
    wait: float
    limit: int


OPERATIONS = st.builds(
    Operation,
    kind=st.sampled_from(["hold"] * 6 + ["append"] * 7 + ["snapshot"] * 3 + ["create", "replace"]),
    name=st.sampled_from(["a"] * 7 + ["b"]),
    uid=st.sampled_from(["uid-1"] * 9 + ["uid-2"]),
    distance=st.sampled_from([0] * 6 + [-1, -2, -3, -5, 1]),
    elapsed=st.sampled_from([0.0, 0.0, 0.25, 1.0, 7.0]),
    ids=st.lists(st.sampled_from(IDS), unique=True, min_size=1, max_size=3).flatmap(
        lambda ids: st.permutations([*ids, None]).map(tuple)
    ),
    counts=st.tuples(*[st.sampled_from([1, 1, 1, 2, 3])] * 3),
    blob=st.sampled_from([b"", b"x", b"\x00\xff"]),
    wait=st.sampled_from([-1.0, 0.0, 1.0, 3.0, 20.0]),
    limit=st.integers(0, 3),
)


def call_of(operation: Operation, round: int, now: float) -> Call:
    target = max(round + operation.distance, 0)
    name, uid = operation.name, operation.uid
    match operation.kind:
        case "create":
            return lambda store: store.create(*new(operation, now))
        case "hold":
            prediction = Waiting(operation.ids[0] or "p", operation.blob, now + operation.wait)
            return lambda store: store.hold(name, uid, target, prediction, now=now, limit=operation.limit)
        case "append":
            events, last = [], target
            for id, count in zip(operation.ids, operation.counts, strict=False):
                last += count
                events.append(Event(last, operation.blob, id, operation.blob, count))
            return lambda store: store.append(name, uid, target, events, now=now)
        case "snapshot":
            return lambda store: store.snapshot(name, uid, target, operation.blob, now=now)
        case _:
            return lambda store: replace(store, *new(operation, now))


def new(operation: Operation, now: float) -> tuple[Head, bytes | None]:
    """A session at round 0, or at a later one with a snapshot."""
    head = Head(operation.name, operation.uid, operation.blob, now)
    if operation.limit < 2:
        return head, None
    return dataclasses.replace(head, round=operation.counts[0] - 1), operation.blob


async def replace(store: Any, head: Head, snapshot: bytes | None) -> bool:
    was_there = await store.delete(head.name)
    await store.create(head, snapshot)
    return was_there


async def answer(call: Call, store: Any) -> Any:
    try:
        return await call(store)
    except SessionExists as error:
        return str(error)


async def observe(store: Any, round: int) -> list[Any]:
    """All that a caller can find out."""
    seen = [await store.count(), await store.list(None, 1), await store.list("a", 1), await store.read("b")]
    seen += [await store.look_up("a", UIDS[0], id) for id in IDS]
    return seen + [
        await store.read("a", None, after) for after in {-1, round - 5, round - 2, round - 1, round, round + 1}
    ]


async def check(url: str, operations: list[Operation]) -> None:
    model = StoreModel(tail_events=TAIL_EVENTS, applied_kept=APPLIED_KEPT)
    store = open_store(url)
    await store.open()
    try:
        await clear(store)
        now = 1_000.1
        for operation in operations:
            now += operation.elapsed
            head = await model.head(operation.name)
            call = call_of(operation, 0 if isinstance(head, Gone) else head.round, now)
            assert await answer(call, store) == await answer(call, model)
            reached = model.sessions["a"].head.round
            assert await observe(store, reached) == await observe(model, reached)
    finally:
        await store.close()


async def clear(store: Store) -> None:
    for name in NAMES:
        await store.delete(name)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(OPERATIONS, min_size=10, max_size=40))
def test_a_store_does_what_the_model_does(store_url: str, operations: list[Operation]) -> None:
    small: dict[str, Any] = {"TAIL_EVENTS": TAIL_EVENTS, "APPLIED_KEPT": APPLIED_KEPT}
    created = Operation("create", "a", "uid-1", 0, 0.0, ("p",), (1,), b"", 0.0, 1)
    with (
        patch.multiple(service.store.redis, **small),
        patch.multiple(service.store.sqlite_tables, **small),
        patch.object(service.store.sqlite_tables, "TRIM_APPLIED_EVERY", 1),
    ):
        asyncio.run(check(store_url, [created, *operations]))
