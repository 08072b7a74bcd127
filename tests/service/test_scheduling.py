"""Where arithmetic runs: what is short on the event loop, what is long in threads of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from service.replica.replica import Replica
from service.replica.scheduling import (
    BLOCK_ROUNDS,
    LONG_FROM_S,
    LONG_THREADS,
    ROUNDS_AT_ONCE,
    SHORT_THREADS,
    THREAD_FROM_BYTES,
    THREAD_FROM_S,
    WHOLE_ROUNDS,
    Scheduler,
)

pytestmark = pytest.mark.anyio

HERE = threading.main_thread().name
SHORT, LONG = "okl-short", "okl-long"


@pytest.fixture
async def scheduler() -> AsyncIterator[Scheduler]:
    scheduler = Scheduler()
    yield scheduler
    scheduler.close()


def where() -> str:
    return threading.current_thread().name.split("_")[0]


def replica_of(round_s: float) -> Replica:
    return Replica("s", round_s=round_s)


@pytest.mark.parametrize(
    ("round_s", "rounds", "is_long", "expected"),
    [
        (0.0, 1, False, HERE),
        (0.0, ROUNDS_AT_ONCE, False, HERE),
        (0.0, ROUNDS_AT_ONCE + 1, False, SHORT),
        (0.0, BLOCK_ROUNDS + 1, False, LONG),
        (0.0, 1, True, LONG),
        (1e-4, 1, False, HERE),
        (1e-4, 40, False, HERE),
        (1e-4, 60, False, SHORT),
        (1e-4, 2_000, False, LONG),
        (2.0 * THREAD_FROM_S, 1, False, SHORT),
        (2.0 * LONG_FROM_S, 1, False, LONG),
        (1e-6, 1, True, LONG),
    ],
)
async def test_rounds_run_where_they_belong(
    scheduler: Scheduler, round_s: float, rounds: int, is_long: bool, expected: str
) -> None:
    assert await scheduler.rounds(replica_of(round_s), where, rounds, is_long=is_long) == expected


async def test_many_rounds_without_a_pause_run_in_a_thread_however_quick_they_were(scheduler: Scheduler) -> None:
    for whole, expected in ((WHOLE_ROUNDS, HERE), (WHOLE_ROUNDS + 1, SHORT)):
        assert await scheduler.rounds(replica_of(1e-6), where, 40, whole=whole) == expected


@pytest.mark.parametrize(("size", "expected"), [(10, HERE), (THREAD_FROM_BYTES, SHORT), (17 * THREAD_FROM_BYTES, LONG)])
async def test_bytes_run_where_they_belong(scheduler: Scheduler, size: int, expected: str) -> None:
    assert await scheduler.bytes(size, where) == expected


async def test_long_work_does_not_hold_up_short_work(scheduler: Scheduler) -> None:
    """Not even more long work than there are threads."""
    over = threading.Event()
    waiting = [
        asyncio.ensure_future(scheduler.rounds(replica_of(0.0), over.wait, 1, is_long=True))
        for _ in range(LONG_THREADS + SHORT_THREADS + 2)
    ]
    await asyncio.sleep(0)
    assert await scheduler.rounds(replica_of(2.0 * THREAD_FROM_S), where, 1) == SHORT
    assert await scheduler.rounds(replica_of(0.0), where, 1) == HERE
    assert not any(one.done() for one in waiting)
    over.set()
    await asyncio.gather(*waiting)


def taking(seconds: float) -> Callable[[], None]:
    return lambda: time.sleep(seconds)


async def test_it_learns_how_long_a_round_takes(scheduler: Scheduler) -> None:
    replica = replica_of(0.0)
    await scheduler.rounds(replica, taking(0.004), 4)
    assert replica.round_s >= 0.001
    rounds = 0
    while replica.round_s >= 0.0005:
        await scheduler.rounds(replica, taking(0.0), 1)
        rounds += 1
        assert rounds < 2_000
    assert rounds > 5


async def test_it_soon_knows_a_slow_round(scheduler: Scheduler) -> None:
    """The first turn forecasts quickly, and then learns for long."""
    replica = replica_of(0.0)
    for seconds in (0.001, 0.1):
        await scheduler.rounds(replica, taking(seconds), 1)
    assert replica.round_s >= 0.04
    for _ in range(30):
        await scheduler.rounds(replica, taking(0.0), 1)
    await scheduler.rounds(replica, taking(0.1), 1)
    assert replica.round_s < 0.03


async def test_a_long_round_says_nothing_of_the_others(scheduler: Scheduler) -> None:
    """But it is replayed too, and that takes its time."""
    replica = replica_of(1e-4)
    await scheduler.rounds(replica, taking(0.02), 1, is_long=True)
    assert replica.round_s == 1e-4
    assert replica.journal.seconds >= 0.02 - 1e-4


async def test_blocks_that_each_have_a_long_round_are_timed_as_a_whole(scheduler: Scheduler) -> None:
    """Until an ordinary round is timed, which counts instead."""
    replica = replica_of(0.0)
    for seconds in (0.2, 0.4):
        await scheduler.rounds(replica, taking(seconds), 2, is_long=True)
        assert replica.round_s >= seconds / 2
        assert replica.journal.seconds == 0.0
    await scheduler.rounds(replica, taking(0.0), 1)
    assert replica.round_s < 0.1


async def test_errors_come_back(scheduler: Scheduler) -> None:
    def fail() -> None:
        raise ValueError("on purpose")

    for round_s in (1e-5, 2.0 * THREAD_FROM_S, 2.0 * LONG_FROM_S):
        with pytest.raises(ValueError, match="on purpose"):
            await scheduler.rounds(replica_of(round_s), fail, 1)
