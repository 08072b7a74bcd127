"""Two workers on one store: the state is that of the acknowledged rounds, one after the other, each once."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from okl.errors import (
    WrongDimension,
    WrongTruth,
)
from okl_core.records.record import to_bytes
from service.session.codec import BlockEntry, decode_entry
from service.session.requests import Batch, Report
from tests.oracles.model_store import ModelStore
from tests.service.definitions import MEDIAN, POMDR, RIDGE, define
from tests.service.worker import (
    DATA,
    TRUTHS,
    Call,
    Watched,
    assert_sequential,
    direct,
    opened,
    read,
    replayed,
    together,
    told,
    working,
)

pytestmark = pytest.mark.anyio

X, Y = DATA.tolist(), TRUTHS.tolist()


@pytest.mark.each
@pytest.mark.parametrize("seed", range(3))
async def test_two_workers_race_with_everything(store_url: str, seed: int) -> None:
    """The state in the end is that of the acknowledged rounds, one after the other, each once."""
    stores = [await opened(store_url) for _ in range(2)]
    n = 240
    async with working(stores[0]) as one, working(stores[1]) as other:
        await one.sessions.create(define(RIDGE))
        acknowledged: list[tuple[int, int]] = []

        async def single(rows: range, kind: str) -> None:
            rng = np.random.default_rng((seed, rows.start))
            for row in rows:
                here, there = [worker.rounds for worker in ((one, other) if rng.random() < 0.5 else (other, one))]
                if kind == "direct":
                    updated = await here.update("s", direct(row, f"u{row}"))
                elif kind == "late":
                    await here.predict("s", X[row], id=f"u{row}")
                    updated = await there.update("s", Report(Y[row], f"u{row}"))
                else:
                    stepped = await here.step("s", direct(row, f"u{row}"), X[row], wait=False)
                    assert stepped.refusal is None
                    updated = stepped.update
                assert not updated.is_duplicate
                acknowledged.append((updated.t, row))

        async def blocks(rows: range) -> None:
            for start in range(rows.start, rows.stop, 10):
                here = (one, other)[start // 10 % 2].rounds
                batch = Batch(X[start : start + 10], Y[start : start + 10], f"b{start}")
                played = await here.rounds("s", batch)
                assert played.rounds == 10
                acknowledged.extend((played.t - 9 + i, start + i) for i in range(10))

        async def asking() -> None:
            last = [0, 0]
            for i in range(40):
                told = await (one, other)[i % 2].rounds.predict("s", X[400 + i], wait=False)
                # What a worker has told, it has told of a durable state: no answer goes back in time.
                assert told.t >= max(last)
                last[i % 2] = told.t

        await asyncio.gather(
            *(single(range(start, start + 20), kind) for start, kind in zip(range(0, 180, 20), KINDS * 3, strict=True)),
            blocks(range(180, n)),
            asking(),
        )
        found = [await worker.sessions.inspect("s") for worker in (one, other)]
        assert [(one.t, one.head.waiting) for one in found] == [(n, 0)] * 2
        issued = [await worker.rounds.predict("s", X[500], wait=False) for worker in (one, other)]
        assert issued[0] == issued[1]
    reading = await read(stores[0])
    order: list[bytes] = []
    for entry in (decode_entry(entry.blob) for entry in reading.entries):
        raws = entry.raws if isinstance(entry, BlockEntry) else [entry.x]
        order.extend(to_bytes(raw)[1:] for raw in raws)
    assert sorted(acknowledged) == [(t, row) for t, row in sorted(acknowledged) if order[t - 1] == DATA[row].tobytes()]
    assert [t for t, _ in sorted(acknowledged)] == list(range(1, n + 1))
    await assert_sequential(stores[0], n)
    assert (await replayed(stores[1])).forecast(DATA[500]).value == issued[0].answer.value
    for store in stores:
        await store.close()


KINDS = ("direct", "late", "step")


@pytest.mark.parametrize("learner", [POMDR, MEDIAN], ids=["learner", "warm-up"])
async def test_a_worker_that_is_always_second_gets_through(learner: dict[str, Any]) -> None:
    """Whenever it is about to commit, the other one commits first, three times; its requests are played again."""
    store = ModelStore()
    watched = Watched(store)
    async with working(watched.as_store) as second, working(store) as first:
        await first.sessions.create(define(learner, warmup_rounds=6))
        row = iter(range(100))
        overtaken = 0

        async def before(call: Call) -> None:
            nonlocal overtaken
            if call.method == "commit" and overtaken % 4 < 3:
                overtaken += 1
                await first.rounds.update("s", direct(next(row)))
            elif call.method == "commit":
                overtaken += 1

        watched.before = before
        mine = []
        for _ in range(5):
            tasks = together(*(second.rounds.update("s", direct(next(row))) for _ in range(2)))
            mine += [answer.t for answer in await told(tasks)]
        assert mine == sorted(set(mine))
        assert overtaken >= 20
        watched.work()
        found = await second.sessions.inspect("s")
        assert found.t == 10 + overtaken - overtaken // 4
        expected = await replayed(store)
        issued = await second.rounds.predict("s", X[300], wait=False)
        assert expected.task is not None
        assert issued.answer == expected.task.truths.answer(expected.forecast(DATA[300]))


async def test_a_refusal_counts_only_at_the_tip() -> None:
    """What one worker's copy would refuse may be right by now, and the reverse."""
    store = ModelStore()
    async with working(store) as one, working(store) as other:
        await one.sessions.create(define())
        await other.rounds.predict("s", [1.0], wait=False)
        await one.sessions.delete("s")
        await one.sessions.create(define(labels=None, dim=3, y_range=(0.0, 1.0)))
        with pytest.raises(WrongTruth):
            await other.rounds.update("s", Report(7.0, None, [1.0, 2.0, 3.0]))
        with pytest.raises(WrongDimension):
            await other.rounds.predict("s", [1.0])
        await one.sessions.delete("s")
        await one.sessions.create(define(dim=1))
        for asked in (
            other.rounds.rounds("s", Batch([[1.0]], [7.0])),
            other.rounds.step("s", Report(7.0, None, [1.0]), [1.0]),
            other.rounds.update("s", Report(7.0, None, [1.0])),
            other.rounds.predict("s", [1.0]),
        ):
            await asked
        assert (await one.sessions.inspect("s")).t == 3


async def test_a_commit_of_nothing_asks_whether_the_session_is_there(store_url: str) -> None:
    """On each store: a worker that is behind must not answer from what it has."""
    stores = [await opened(store_url) for _ in range(2)]
    async with working(stores[0]) as one, working(stores[1]) as other:
        await one.sessions.create(define())
        await other.rounds.predict("s", [1.0], wait=False)
        for i in range(1, 6):
            await one.rounds.update("s", Report(float(i), None, [1.0]))
            told = await other.rounds.predict("s", [1.0], wait=False)
            assert (told.t, told.answer.value) == (i, pytest.approx((i + 1) / 2.0))
    for store in stores:
        await store.close()
