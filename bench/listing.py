"""What a page of 1,000 sessions costs on each store: `python -m bench.listing [--redis URL] [--cluster URL]`."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from service.store.base import DIGEST_BYTES, Hold, Store, Tip
from service.store.opening import open_store

SESSIONS = 1_000
SUMMARY = bytes(1_000)
RECORD = bytes(2_000)
PAGES = 15


async def bench(store: Store) -> tuple[float, float, float]:
    """Milliseconds a page: CPU time of this process, threads included, the median and the least; and the median of what
    passes meanwhile."""
    await store.open()
    names = [f"listed-{number:04d}" for number in range(SESSIONS)]
    for name in names:
        tip = Tip(0, secrets.token_bytes(DIGEST_BYTES))
        await store.create(name, RECORD, tip, summary=SUMMARY)
        await store.commit(name, tip, [], [Hold("p", b"forecast", 3600.0)])
    cpu: list[float] = []
    wall: list[float] = []
    for _ in range(PAGES):
        start, cpu_start = time.perf_counter(), time.process_time()
        page = await store.list(None, SESSIONS)
        cpu.append(time.process_time() - cpu_start)
        wall.append(time.perf_counter() - start)
        assert len(page.heads) == SESSIONS
    for name in names:
        await store.delete(name)
    await store.close()
    return sorted(cpu)[PAGES // 2] * 1e3, min(cpu) * 1e3, sorted(wall)[PAGES // 2] * 1e3


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis", metavar="URL", help="a Redis server that may be written to")
    parser.add_argument("--cluster", metavar="URL", help="a Redis Cluster that may be written to")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        urls = {"sqlite": f"sqlite:///{Path(folder) / 'listing.sqlite3'}"}
        urls |= {"redis": options.redis} if options.redis else {}
        urls |= {"redis cluster": options.cluster} if options.cluster else {}
        print(f"{'store':<16}{'cpu ms':>9}{'least':>9}{'wall ms':>9}")
        for name, url in urls.items():
            costs = asyncio.run(bench(open_store(url)))
            print(f"{name:<16}{costs[0]:9.1f}{costs[1]:9.1f}{costs[2]:9.1f}")


if __name__ == "__main__":
    main()
