"""Several workers feed one challenger: each round once, whoever dies; and a promotion under a stream loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import numpy as np
import pytest

from okl_core.types import F64
from service.demo_data import magic
from service.session.session import Session
from service.session.snapshot import pack
from service.session.turn import Position
from service.store.base import Gone, Store
from tests.service.api import Api, serving, serving_on
from tests.service.challenged import CHAMPION, attach, caught_up, named, session_of
from tests.service.definitions import RIDGE
from tests.service.worker import Watched

pytestmark = pytest.mark.anyio

X, Y = magic()


@asynccontextmanager
async def two(store_url: str, **settings: Any) -> AsyncIterator[tuple[Api, Api]]:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(serving(store_url, **settings))
        other = await stack.enter_async_context(serving(store_url, **settings))
        yield one, other


def state_of(session: Session) -> dict[str, F64]:
    assert session.learner is not None
    return session.learner.state()


async def replayed(store: Store, name: str) -> Session:
    """The session anew, from what is stored alone."""
    async with serving_on(store) as fresh:
        return await session_of(fresh, name)


async def test_two_workers_feed_each_round_once(store_url: str) -> None:
    """Both serve the champion, both know of the challenger, and predictions wait at each while the other learns."""
    n = 120
    async with two(store_url) as (one, other):
        await one.create(RIDGE, y_range=[-1, 1])
        await attach(one, GRADIENT)
        for api in (one, other):
            await api.worker.roster.sweep()

        async def client(api: Api, rows: range) -> None:
            for row in rows:
                await api.predict(X[row].tolist(), id=f"r{row}")
                await asyncio.sleep(0.01)
                await api.update(float(Y[row]), id=f"r{row}")

        await asyncio.gather(client(one, range(n // 2)), client(other, range(n // 2, n)))
        told = await caught_up(other)
        assert (told["t"], told["skipped"]) == (n, 0)
        assert told["comparison"]["rounds"] + told["missed"] == n - 16
        seen, own = await session_of(one, "s~c"), await session_of(other, "s~c")
        again = await replayed(one.store, "s~c")
        for session in (own, again):
            assert session.pairing == seen.pairing
            for name, array in state_of(session).items():
                np.testing.assert_allclose(array, state_of(seen)[name], rtol=1e-9, atol=1e-12)
        # In the order of the champion's journal.
        inputs = [await inputs_of(one.store, name) for name in ("s", "s~c")]
        assert inputs[0] == inputs[1]


GRADIENT: dict[str, Any] = {
    "kind": "kernel-ogd",
    "config": {"kernel": {"kind": "gaussian", "sigma": 0.5}, "loss": "squared"},
}


async def inputs_of(store: Store, name: str) -> list[str]:
    entries = await store.last(name, 10_000)
    assert not isinstance(entries, Gone)
    return [entry.id for entry in entries]


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_worker_that_dies_while_it_feeds(watched: Watched, is_late: bool) -> None:
    """Before its commit reached the store, or after."""
    async with serving_on(watched.as_store) as api:
        await api.create(**CHAMPION)
        await attach(api)
        for row in range(20):
            await api.update(named(row), x=X[row].tolist())
        commits = 0

        async def die(call: Any, *answer: Any) -> Any:
            nonlocal commits
            if call.method == "commit" and call.arguments[0] == "s~c":
                commits += 1
                raise asyncio.CancelledError
            return answer[0] if answer else None

        watched.before, watched.after = (None, die) if is_late else (die, None)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(api.worker.feeder.feed("s", "c"))
        assert commits == 1
        watched.work()
    async with serving_on(watched.as_store) as other:
        for row in range(20, 30):
            await other.update(named(row), x=X[row].tolist())
        fed = await other.worker.feeder.feed("s", "c")
        assert fed.rounds == (10 if is_late else 30)
        told = await other.call("GET", "/sessions/s/challengers/c")
        assert (told["t"], told["behind"], told["missed"], told["skipped"]) == (30, 0, 0, 0)
        assert told["comparison"]["rounds"] == 30


async def test_a_worker_finds_what_another_attached_before_it_trims_the_journal(store_url: str) -> None:
    async with two(store_url, retain_entries=5) as (one, other):
        await one.create(**CHAMPION)
        await other.inspect()
        await attach(one)
        await one.worker.roster.close()
        for row in range(600):
            await other.update(named(row), x=X[row].tolist())
        assert (await caught_up(other))["skipped"] == 0
        assert (await other.call("POST", "/sessions/s/rename", {"name": "t"}))["name"] == "t"
        await other.update(named(0), "t", x=X[0].tolist())
        for _ in range(100):
            if (told := await caught_up(other, name="t"))["t"] == 601:
                break
            await asyncio.sleep(0.02)
        assert (told["t"], told["skipped"]) == (601, 0)


async def test_the_challengers_of_a_renamed_session_go_on_at_once(memory: Api) -> None:
    await memory.create(**CHAMPION)
    await attach(memory)
    await memory.call("POST", "/sessions/s/rename", {"name": "t"})
    await memory.update(named(0), "t", x=X[0].tolist())
    # The next sweep, which would find them too, is later.
    async with asyncio.timeout(5.0):
        assert (await caught_up(memory, name="t"))["t"] == 1


async def test_sessions_that_take_the_names_of_others_are_followed_at_once(store_url: str) -> None:
    async with two(store_url, retain_entries=5) as (one, other):
        await one.create(**CHAMPION)
        await attach(one)
        await one.worker.roster.close()
        await other.worker.roster.sweep()
        await one.call("POST", "/sessions/s/rename", {"name": "t"})
        other.worker.roster.wake("s")
        await asyncio.sleep(0.2)
        await one.call("POST", "/sessions/t/rename", {"name": "s"})
        for row in range(600):
            await other.update(named(row), x=X[row].tolist())
        assert (await caught_up(other))["skipped"] == 0


async def test_a_snapshot_every_few_rounds_finds_what_another_worker_attached(store_url: str) -> None:
    """The champion is blocked while it is written, so the challenger follows only afterwards."""
    async with two(store_url, retain_entries=100) as (one, other):
        await one.create(**CHAMPION, snapshot_every=20)
        await other.inspect()
        await attach(one)
        await one.worker.roster.close()
        for row in range(300):
            await other.update(named(row), x=X[row].tolist())
            await asyncio.sleep(0.002)
        assert (await caught_up(other))["skipped"] == 0


async def test_a_challenger_that_is_slow_does_not_delay_those_of_other_sessions(watched: Watched) -> None:
    async with serving_on(watched.as_store) as api:
        api.worker.roster.start(api.worker.feeder)
        go_on = asyncio.Event()

        async def before(call: Any) -> None:
            if call.method == "commit" and call.arguments[0] == "a~c":
                await go_on.wait()

        watched.before = before
        for name in ("a", "b"):
            await api.create(**CHAMPION, name=name)
            await attach(api, name=name)
            for row in range(5):
                await api.update(named(row), name, x=X[row].tolist())
        assert (await caught_up(api, name="b"))["t"] == 5
        go_on.set()
        assert (await caught_up(api, name="a"))["t"] == 5


async def test_a_challenger_that_is_too_far_behind_says_what_it_skipped(store_url: str) -> None:
    async with serving(store_url, retain_entries=5) as api:
        await api.create(**CHAMPION)
        await attach(api)
        await api.worker.roster.close()
        for row in range(10):
            await api.update(named(row), x=X[row].tolist())
        position, blob = await api.worker.rounds.with_session("s", packed)
        assert await api.store.snapshot("s", position.tip, blob)
        for row in range(10, 14):
            await api.update(named(row), x=X[row].tolist())
        fed = await api.worker.feeder.feed("s", "c")
        told = await api.call("GET", "/sessions/s/challengers/c")
        # Its place was not in the tail any more: from the oldest round that is kept on.
        assert (fed.rounds, told["t"], told["skipped"], told["behind"]) == (9, 9, 5, 0)


def packed(session: Session, _: Any, position: Position) -> tuple[Position, bytes]:
    return position, pack(session, str(position))


async def test_a_promotion_under_a_stream_loses_nothing(store_url: str) -> None:
    """Predictions wait at two workers from before it, and their truths come after it."""
    n, early = 100, 20
    learned: dict[str, dict[str, Any]] = {}
    async with two(store_url) as (one, other):
        await one.create(**CHAMPION)
        await attach(one)
        for api in (one, other):
            await api.worker.roster.sweep()
        issued = [await (one, other)[row % 2].predict(X[row].tolist(), id=f"r{row}") for row in range(early)]

        async def client(api: Api, rows: range) -> None:
            for row in rows:
                await api.predict(X[row].tolist(), id=f"r{row}")
                learned[f"r{row}"] = await api.update(named(row), id=f"r{row}")

        async def promotion() -> None:
            while len(learned) < 30:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            found = await other.call("POST", "/sessions/s/challengers/c/promote")
            assert found["learner"]["kind"] == "pomdr"

        half = (n + early) // 2
        await asyncio.gather(client(one, range(early, half)), client(other, range(half, n)), promotion())
        for row in range(early):
            told = await (one, other)[(row + 1) % 2].update(named(row), id=f"r{row}")
            assert told["mistake"] == (issued[row]["label"] != named(row))
            learned[f"r{row}"] = told
        found = [await api.inspect() for api in (one, other)]
        assert found[0]["t"] == found[1]["t"] == n
        assert found[0]["waiting"] == found[0]["never_came"] == 0
        # Each once: sent again, each is told what it was told before.
        for row in range(0, n, 7):
            again = await one.update(named(row), id=f"r{row}")
            assert again["duplicate"]
            assert again["loss"] == learned[f"r{row}"]["loss"]
