"""Where arithmetic runs: short work on the event loop, longer work in a thread, long work in separate threads.

One session's long work never delays another's short work, since each kind has its own threads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, final

from .replica import Replica

BRIEF_S = 0.001
"""Arithmetic shorter than this runs at once. Of longer work on the event loop, each of its iterations does one piece at most,
however many sessions are busy, so that a request meets few of them."""

THREAD_FROM_S = 0.005
"""Arithmetic longer than this goes to a thread, so that other sessions are not held up; the hop costs 50 us."""

LONG_FROM_S = 0.1
"""Work longer than this goes to the threads for long work."""

TURN_S = 0.05
"""The approximate time of a turn, short enough for its first request, and for others at this worker, not to wait long."""

ROUNDS_AT_ONCE = 16
"""More rounds than this go to a thread until a round has been timed."""

WHOLE_ROUNDS = 4
"""More rounds than this that the end of a turn cannot interrupt go to a thread, since fast rounds may become slow."""

BLOCK_ROUNDS = 256
"""More rounds than this count as long work until a round has been timed."""

THREAD_FROM_BYTES = 1 << 20
"""Packing or parsing more than this goes to a thread."""

LATEST = 0.1
"""The weight of the latest time in the moving average of a round's time. The first few times weigh more if they exceed the
average: the first covers a forecast only, and learning, which may take a hundred times as long, is timed second."""

SHORT_THREADS, LONG_THREADS = 4, 2

T = TypeVar("T")


@final
class TurnTime:
    """The time that is left of a turn; its waiting for other sessions does not count."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    def within(self, requests: Iterable[T]) -> Iterator[T]:
        """Yield the requests that the turn can begin in its time; rounds may be slower than expected."""
        for request in requests:
            if self._left <= 0.0:
                return
            started = time.perf_counter()
            yield request
            self._left -= time.perf_counter() - started


class Scheduler:
    """The worker's threads for arithmetic."""

    def __init__(self) -> None:
        self._short = ThreadPoolExecutor(SHORT_THREADS, "okl-short")
        self._long = ThreadPoolExecutor(LONG_THREADS, "okl-long")
        self._on_loop = asyncio.Lock()

    def close(self) -> None:
        """Shut down: work under way continues, work that has not begun is cancelled."""
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
        """Run rounds of a session on the event loop or in a thread, and measure how long one takes.

        The work does not check the clock within `whole` rounds. `done` counts the rounds played, if they may be fewer.
        """
        before = 0 if done is None else done()
        pool = self._pool_of(replica.round_s, rounds, is_long)
        if pool is None and whole > WHOLE_ROUNDS:
            pool = self._short
        if pool is None and rounds * replica.round_s > BRIEF_S:
            async with self._on_loop:
                result, took = _timed(work)
                await asyncio.sleep(0)
        elif pool is None:
            result, took = _timed(work)
            if took > TURN_S:
                # The next work may run on the event loop too, and a store may answer without yielding to other tasks.
                await asyncio.sleep(0)
        else:
            result, took = await asyncio.get_running_loop().run_in_executor(pool, _timed, work)
        rounds = rounds if done is None else done() - before
        if is_long:
            if rounds > 1 and not replica.timed:
                # An estimate: in a stream of blocks that each have an exceptional round, no other is ever timed.
                replica.round_s = took / rounds
            # The journal counts the ordinary time of these rounds itself.
            replica.journal.seconds += max(took - rounds * replica.round_s, 0.0)
        elif rounds:
            took /= rounds
            replica.timed += 1
            is_first = replica.timed == 1
            share = max(LATEST, 1.0 / replica.timed) if is_first or took > replica.round_s else LATEST
            replica.round_s += share * (took - replica.round_s)
        return result

    def turn_time(self) -> TurnTime:
        return TurnTime(TURN_S)

    async def bytes(self, size: int, work: Callable[[], T]) -> T:
        """Run work whose time is proportional to this many bytes."""
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
