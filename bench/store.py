"""What the commit of a prediction, of a round and of a step cost on each store: `python -m bench.store [--redis URL]`."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import struct
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.store.base import DIGEST_BYTES, Committed, Entry, Hold, Store, Tip
from service.store.opening import open_store

ROUND = bytes(160)
FORECAST = struct.pack("<10d", *range(10))
WARM_UP = 200
WAIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds a call; `cpu` is this process alone, threads included."""

    p50: float
    p99: float
    wall: float
    cpu: float


async def measure(call: Callable[[int], Awaitable[None]], count: int) -> Cost:
    times: list[float] = []
    cpu = time.process_time()
    for i in range(count):
        start = time.perf_counter()
        await call(i)
        times.append(time.perf_counter() - start)
    cpu = time.process_time() - cpu
    times.sort()
    p50, p99, wall = times[count // 2], times[count * 99 // 100], sum(times) / count
    return Cost(p50 * 1e6, p99 * 1e6, wall * 1e6, cpu / count * 1e6)


async def bench(store: Store, count: int) -> dict[str, Cost]:
    """`count` predictions held one after the other, then settled one after the other; then as many steps."""
    await store.open()
    await store.delete("bench")
    tip = Tip(0, secrets.token_bytes(DIGEST_BYTES))
    await store.create("bench", b"{}", tip)

    def settled(id: str) -> Entry:
        nonlocal tip
        entry = Entry.after(tip, 1, id, ROUND, FORECAST)
        tip = entry.tip
        return entry

    async def predict(i: int) -> None:
        answer = await store.commit("bench", tip, [], [Hold(f"prediction-{i:08d}", FORECAST, WAIT_S)])
        assert isinstance(answer, Committed), answer

    async def update(i: int) -> None:
        before = tip
        answer = await store.commit("bench", before, [settled(f"prediction-{i:08d}")])
        assert isinstance(answer, Committed), answer

    async def step(i: int) -> None:
        before = tip
        hold = Hold(f"step-{i + 1:08d}", FORECAST, WAIT_S)
        answer = await store.commit("bench", before, [settled(f"step-{i:08d}")], [hold])
        assert isinstance(answer, Committed), answer

    for _ in range(WARM_UP):
        await store.head("bench")
    calls = {"predict": predict, "update": update, "step": step}
    costs = {name: await measure(call, count) for name, call in calls.items()}
    await store.delete("bench")
    await store.close()
    return costs


def show(results: dict[str, dict[str, Cost]]) -> None:
    print(f"{'store':<18}{'call':<8}{'p50 us':>9}{'p99 us':>9}{'wall us':>9}{'cpu us':>9}")
    for store, costs in results.items():
        for call, cost in costs.items():
            print(f"{store:<18}{call:<8}{cost.p50:9.1f}{cost.p99:9.1f}{cost.wall:9.1f}{cost.cpu:9.1f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis", metavar="URL", help="a Redis server that may be written to")
    parser.add_argument("--count", type=int, default=5_000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        urls = {"sqlite": f"sqlite:///{Path(folder) / 'bench.sqlite3'}", "sqlite memory": "sqlite://"}
        if options.redis:
            urls["redis"] = options.redis
        show({name: asyncio.run(bench(open_store(url), options.count)) for name, url in urls.items()})


if __name__ == "__main__":
    main()
