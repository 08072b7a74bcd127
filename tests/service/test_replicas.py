"""The copies that a worker keeps: as many as fit, none of sessions that are not there, each as large as it says."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from okl.errors import PredictionNotFound, SessionNotFound
from service.replica.replica import SESSION_BYTES
from service.session.requests import Batch, Report
from tests.oracles.model_store import ModelStore
from tests.service.definitions import MEAN, ONE_VS_REST, RIDGE, define
from tests.service.worker import Clock, Gate, Watched, settle, together, told, working

pytestmark = pytest.mark.anyio

X = np.random.default_rng(0).random((500, 40)).tolist()


async def test_names_that_no_session_has_leave_nothing_behind() -> None:
    async with working(ModelStore()) as worker:

        async def look(name: str) -> None:
            for asked in (
                worker.rounds.predict(name, [1.0]),
                worker.rounds.update(name, Report(1.0, "p", [1.0])),
                worker.rounds.rounds(name, Batch([[1.0]], [1.0])),
                worker.rounds.step(name, Report(1.0, None, [1.0]), [1.0]),
                worker.sessions.inspect(name),
            ):
                with pytest.raises(SessionNotFound):
                    await asked

        await asyncio.gather(*(look(f"nobody-{i % 100}") for i in range(300)))
        assert len(worker.rounds.replicas) == 0
        assert worker.rounds.replicas.nbytes == 0


async def test_a_deleted_session_leaves_nothing_behind() -> None:
    async with working(ModelStore()) as worker:
        await worker.sessions.create(define())
        await worker.rounds.update("s", Report(1.0, None, [1.0]))
        await worker.rounds.predict("s", [1.0], id="p")
        assert len(worker.rounds.replicas) == 1
        await worker.sessions.delete("s")
        assert (len(worker.rounds.replicas), worker.rounds.replicas.nbytes) == (0, 0)
        with pytest.raises(SessionNotFound):
            await worker.rounds.predict("s", [1.0])
        assert len(worker.rounds.replicas) == 0


async def test_a_session_deleted_while_its_copy_is_used_leaves_nothing_behind() -> None:
    watched = Watched(ModelStore())
    async with working(watched.as_store) as worker:
        await worker.sessions.create(define())
        gate = Gate(watched, after=True)
        updating = together(worker.rounds.update("s", Report(1.0, None, [1.0])))
        await gate.arrived.wait()
        await worker.sessions.delete("s")
        gate.open()
        assert [answer.t for answer in await told(updating)] == [1]
        await settle()
        assert (len(worker.rounds.replicas), worker.rounds.replicas.nbytes) == (0, 0)


async def test_the_size_is_that_of_the_learner_and_of_the_predictions_that_wait() -> None:
    async with working(ModelStore()) as worker:
        await worker.sessions.create(define(RIDGE))
        await worker.rounds.rounds("s", Batch(X[:300], [0.5] * 300))
        found = await worker.sessions.inspect("s")
        learned = worker.rounds.replicas.nbytes
        beside = await worker.rounds.with_session("s", lambda session, *_: session.history.nbytes)
        assert found.nbytes + beside <= learned <= found.nbytes + beside + SESSION_BYTES + 2_000
        for i in range(100):
            await worker.rounds.predict("s", X[i], id=f"p{i}")
        assert worker.rounds.replicas.nbytes >= learned + 100 * 40 * 8
        for i in range(100):
            await worker.rounds.update("s", Report(0.5, f"p{i}"))
        now = await worker.sessions.inspect("s")
        beside = await worker.rounds.with_session("s", lambda session, *_: session.history.nbytes)
        assert now.nbytes + beside <= worker.rounds.replicas.nbytes <= now.nbytes + beside + SESSION_BYTES + 2_000


async def test_probabilities_that_wait_are_counted() -> None:
    async with working(ModelStore()) as worker:
        await worker.sessions.create(define(ONE_VS_REST, labels=tuple(range(500))))
        await worker.rounds.update("s", Report(0, None, [1.0]))
        before = worker.rounds.replicas.nbytes
        for i in range(20):
            await worker.rounds.predict("s", [1.0], id=f"p{i}")
        assert worker.rounds.replicas.nbytes >= before + 20 * 500 * 8


async def test_a_worker_remembers_a_part_of_what_waits_and_the_store_the_rest() -> None:
    """Megabytes of predictions wait: the worker keeps the latest, and asks for the others."""
    store = Watched(ModelStore())
    async with working(store.as_store) as worker:
        await worker.sessions.create(define(dim=1_000))
        x = [0.5] * 1_000
        for i in range(200):
            await worker.rounds.predict("s", x, id=f"p{i}")
        assert worker.rounds.replicas.nbytes < 1_500_000
        store.calls.clear()
        for id in ("p199", "p0"):
            assert (await worker.rounds.update("s", Report(1.0, id))).error == pytest.approx(-1.0)
        assert len(store.of("find")) == 1


async def test_the_bound_holds_whatever_grows() -> None:
    """Learners, or predictions that wait in many small sessions: the copies used least recently go."""
    bound = 400_000 + 20 * SESSION_BYTES
    async with working(ModelStore(), resident_bytes=bound) as worker:
        for i in range(20):
            await worker.sessions.create(define(MEAN, f"small-{i}", dim=40))
            await worker.rounds.predict(f"small-{i}", X[0], wait=False)
        assert len(worker.rounds.replicas) == 20
        largest = 0
        for k in range(70):
            for i in range(20):
                await worker.rounds.predict(f"small-{i}", X[k], id=f"p{k}")
            largest = max(largest, worker.rounds.replicas.nbytes)
        # Between two looks at a copy 64 predictions may be added to each of those that are there.
        assert largest <= bound + 20 * 64 * 2_000
        for i in range(20):
            assert (await worker.rounds.update(f"small-{i}", Report(1.0, "p3"))).t == 1
        for i in range(3):
            await worker.sessions.create(define(RIDGE, f"large-{i}"))
            for start in range(0, 300, 100):
                await worker.rounds.rounds(f"large-{i}", Batch(X[start : start + 100], [0.5] * 100))
        assert worker.rounds.replicas.nbytes <= bound + 2_000_000
        assert len(worker.rounds.replicas) <= 2


async def test_a_copy_that_is_dropped_knows_nothing_wrong(clock: Clock) -> None:
    """What it remembered of predictions goes with it."""
    store = ModelStore(clock=clock)
    async with working(store, resident_bytes=4096) as worker:
        for name in ("a", "b"):
            await worker.sessions.create(define(MEAN, name, expires_s=5.0))
            for i in range(70):
                await worker.rounds.predict(name, [1.0], id=f"p{i}")
        assert len(worker.rounds.replicas) == 1
        clock.skip(20.0)
        with pytest.raises(PredictionNotFound):
            await worker.rounds.update("a", Report(1.0, "p0"))


async def test_a_list_has_the_rounds_of_a_copy_that_was_evicted_and_loaded_again() -> None:
    store = ModelStore()
    async with working(store, resident_bytes=4096) as worker:
        for name in ("a", "b"):
            await worker.sessions.create(define(MEAN, name))
        for _ in range(3):
            for name in ("a", "b"):
                await worker.rounds.update(name, Report(1.0, None, [1.0]))
                assert (await worker.sessions.inspect(name)).t
                assert len(worker.rounds.replicas) == 1
        await worker.rounds.summaries.close()
        assert [head.summary_round for head in (await store.list(None, 9)).heads] == [3, 3]
