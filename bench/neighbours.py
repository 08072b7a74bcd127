"""What a small session's round costs beside large sessions on each store: `python -m bench.neighbours [--store sqlite]`.

A round is a prediction that is held and its truth that is committed. Before: alone. Beside: rounds of 8 kB with answers of
8 kB, and blocks of 1 MB. Then these are deleted, and 100,000 predictions of another session expire, at the same time.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench.http_client import HOST, redis_server
from service.store.base import Committed, Entry, Head, Hold, Limits, Store, Tip
from service.store.opening import open_store

MOST_RATIO = 1.2
"""A neighbour's round may take so much longer beside large sessions, on SQLite."""
BLOB, FORECAST = bytes(160), bytes(80)
LARGE_ROUNDS, LARGE_BYTES = 5_000, 8_000
BLOCKS, BLOCK_BYTES = 6, 1 << 20
EXPIRED = 100_000
EXPIRED_AFTER_S = 20.0
DELETED_AFTER_S = 1.0
"""Stores delete the bulk of a session in steps, after it has gone."""
TURNS = 8
FIRST = Tip(0, bytes(16))
LIMITS = Limits(remembered_bytes=1 << 30, waiting_bytes=1 << 30)


@dataclass
class Session:
    """A session and the tip at which its only caller is."""

    store: Store
    name: str
    tip: Tip = FIRST
    made: int = 0

    async def create(self) -> Session:
        await self.store.delete(self.name)
        await self.store.create(self.name, b"{}", self.tip)
        return self

    async def round(self, blob: bytes, forecast: bytes, answer: bytes) -> None:
        self.made += 1
        id = f"{self.name}-{self.made:08d}"
        await self.commit([], [Hold(id, forecast, 3600.0)])
        await self.commit([Entry.after(self.tip, 1, id, blob, answer)], [])

    async def commit(self, entries: Sequence[Entry], holds: Sequence[Hold]) -> None:
        answer = await self.store.commit(self.name, self.tip, entries, holds)
        assert isinstance(answer, Committed), answer
        assert not any(answer.holds), answer.holds
        self.tip = entries[-1].tip if entries else self.tip


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds a round."""

    p50: float
    p99: float
    worst: float


async def rounds(small: Session, until: asyncio.Future[None] | None = None, count: int = 500) -> Sequence[float]:
    """Seconds of each round; of `count`, or of as many as there are until something is done."""
    found: list[float] = []
    while len(found) < count if until is None else not until.done():
        start = time.perf_counter()
        await small.round(BLOB, FORECAST, FORECAST)
        found.append(time.perf_counter() - start)
        if until is not None:
            await asyncio.sleep(0.001)
    return found


def cost_of(seconds: Sequence[float]) -> Cost:
    ordered = sorted(seconds)
    p50, p99 = statistics.median(ordered), ordered[len(ordered) * 99 // 100]
    return Cost(p50 * 1e6, p99 * 1e6, ordered[-1] * 1e6)


async def write_large(store: Store) -> None:
    large = await Session(store, "large").create()
    for _ in range(LARGE_ROUNDS):
        await large.round(bytes(LARGE_BYTES), FORECAST, bytes(LARGE_BYTES))
    blocks = await Session(store, "blocks").create()
    for _ in range(BLOCKS):
        await blocks.round(bytes(BLOCK_BYTES), FORECAST, bytes(BLOCK_BYTES))


async def write_expiring(store: Store) -> Session:
    expiring = await Session(store, "expiring").create()
    for start in range(0, EXPIRED, 1_000):
        holds = [Hold(f"p{start + number}", FORECAST, EXPIRED_AFTER_S) for number in range(1_000)]
        await expiring.commit([], holds)
    return expiring


async def expire(expiring: Session) -> None:
    """Rounds of the session whose predictions have expired: each sweeps some of them."""
    while isinstance(found := await expiring.store.head(expiring.name), Head) and found.waiting:
        await expiring.round(BLOB, FORECAST, FORECAST)
        await asyncio.sleep(0)


async def delete(store: Store) -> None:
    for name in ("large", "blocks"):
        await store.delete(name)
    await asyncio.sleep(DELETED_AFTER_S)


async def bench(quiet: Store, store: Store) -> dict[str, Cost]:
    """`quiet` has the small session alone. The two are measured in turns, so that both see the same machine."""
    await quiet.open()
    await store.open()
    alone, beside = await Session(quiet, "small").create(), await Session(store, "small").create()
    await rounds(alone)
    await write_large(store)
    await rounds(beside)
    times: dict[str, list[float]] = {"before": [], "beside": []}
    for _ in range(TURNS):
        times["before"] += await rounds(alone)
        times["beside"] += await rounds(beside)
    costs = {what: cost_of(seconds) for what, seconds in times.items()}
    costs["deleted"] = cost_of(await rounds(beside, asyncio.ensure_future(delete(store))))
    expiring = await write_expiring(store)
    await asyncio.sleep(EXPIRED_AFTER_S)
    costs["expiring"] = cost_of(await rounds(beside, asyncio.ensure_future(expire(expiring))))
    await quiet.close()
    await store.close()
    return costs


def show(results: dict[str, dict[str, Cost]]) -> None:
    print(f"{'store':<10}{'a round of a small session':<30}{'p50 us':>9}{'p99 us':>9}{'worst us':>10}{'ratio':>8}")
    for store, costs in results.items():
        for what, cost in costs.items():
            ratio = cost.p50 / costs["before"].p50
            print(f"{store:<10}{what:<30}{cost.p50:9.1f}{cost.p99:9.1f}{cost.worst:10.1f}{ratio:8.2f}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "redis"), action="append", help="default: both")
    options = parser.parse_args(arguments)
    costs: dict[str, dict[str, Cost]] = {}
    with ExitStack() as stack:
        for name in options.store or ("sqlite", "redis"):
            urls = [url_of(name, stack) for _ in range(2)]
            costs[name] = asyncio.run(bench(*(open_store(url, LIMITS) for url in urls)))
    show(costs)
    if "sqlite" not in costs:
        return 0
    ratio = costs["sqlite"]["beside"].p50 / costs["sqlite"]["before"].p50
    print(f"sqlite: {ratio:.2f} beside large sessions; the bar is {MOST_RATIO}")
    return int(ratio > MOST_RATIO)


def url_of(store: str, stack: ExitStack) -> str:
    """A place of its own for a store."""
    if store == "redis":
        return f"redis://{HOST}:{stack.enter_context(redis_server()).port}/0"
    return f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory())}/bench.sqlite3"


if __name__ == "__main__":
    raise SystemExit(main())
