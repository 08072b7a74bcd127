"""Where arithmetic runs: short work on the event loop, longer work in a thread, long work among its own kind.

One session's long work never waits in front of another's short work: each kind has threads of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .replica import Replica

THREAD_FROM_S = 0.005
"""Arithmetic longer than this goes to a thread, so that other sessions are not held up; a hop costs 50 us."""

LONG_FROM_S = 0.1
"""Longer work than this waits for longer work only."""

TURN_S = 0.05
"""A turn takes about so long, so that the first of its requests is not kept waiting, nor whoever else is at this worker."""

ROUNDS_AT_ONCE = 16
"""More rounds than this go to a thread as long as nobody knows how long one takes."""

WHOLE_ROUNDS = 4
"""More rounds than this, between which no turn can end, go to a thread however quick rounds were: they may turn slow."""

BLOCK_ROUNDS = 256
"""More than these are taken for long work as long as nobody knows."""

THREAD_FROM_BYTES = 1 << 20
"""Packing or parsing more than this goes to a thread."""

LATEST = 0.1
"""So much of the mean is the latest time of a round. More of the first few that took longer than was thought: the first turn
of all forecasts, and what it learns, which may take a hundred times as long, is the second."""

SHORT_THREADS, LONG_THREADS = 4, 2

T = TypeVar("T")


class Scheduler:
    """The worker's threads for arithmetic."""

    def __init__(self) -> None:
        self._short = ThreadPoolExecutor(SHORT_THREADS, "okl-short")
        self._long = ThreadPoolExecutor(LONG_THREADS, "okl-long")

    def close(self) -> None:
        """Work under way goes on; what has not begun never does."""
        for pool in (self._short, self._long):
            pool.shutdown(wait=False, cancel_futures=True)

    async def rounds(
        self,
        replica: Replica,
        work: Callable[[], T],
        rounds: int,
        *,
        is_long: bool = False,
        whole: int = 1,
        done: Callable[[], int] | None = None,
    ) -> T:
        """Run rounds of a session where they belong, and learn how long one takes. Between `whole` of them the work
        does not look at the clock. `done` tells afterwards how many of them there were, where that may be fewer."""
        pool = self._pool_of(replica.round_s, rounds, is_long)
        if pool is None and whole > WHOLE_ROUNDS:
            pool = self._short
        if pool is None:
            result, took = _timed(work)
            if took > TURN_S:
                # The next such work may be here too, and a store may answer without letting others go on.
                await asyncio.sleep(0)
        else:
            result, took = await asyncio.get_running_loop().run_in_executor(pool, _timed, work)
        rounds = rounds if done is None else done()
        if is_long:
            # Not a round like others: it says nothing of theirs.
            replica.journal.seconds += took
        elif rounds:
            took /= rounds
            replica.timed += 1
            share = max(LATEST, 1.0 / replica.timed) if took > replica.round_s else LATEST
            replica.round_s += share * (took - replica.round_s)
        return result

    def in_time(self, requests: Sequence[T]) -> Iterator[T]:
        """Those that a turn can begin in its time, and one at least: rounds may take longer than those before them."""
        over = time.perf_counter() + TURN_S
        for number, request in enumerate(requests):
            if number and time.perf_counter() > over:
                return
            yield request

    async def bytes(self, size: int, work: Callable[[], T]) -> T:
        """Work that takes as long as the bytes are many."""
        if size < THREAD_FROM_BYTES:
            return work()
        pool = self._long if size > 16 * THREAD_FROM_BYTES else self._short
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    def _pool_of(self, round_s: float, rounds: int, is_long: bool) -> ThreadPoolExecutor | None:
        if is_long or round_s * rounds > LONG_FROM_S or (round_s == 0.0 and rounds > BLOCK_ROUNDS):
            return self._long
        if round_s * rounds > THREAD_FROM_S or (round_s == 0.0 and rounds > ROUNDS_AT_ONCE):
            return self._short
        return None


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    started = time.perf_counter()
    return work(), time.perf_counter() - started
