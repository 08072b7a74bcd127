"""Bytes that a session writes a round, journal and snapshots: `python -m bench.journal [--rounds N] [--store URL]`.

Counted at the border of the store: what is handed to `commit` (an entry's bytes, id and digest) and to `snapshot`.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from okl_core import LearnerSpec
from service.app import make_worker
from service.demo_data import magic
from service.session.definition import Definition
from service.session.requests import Report
from service.settings import Settings
from service.store.base import Applied, Committed, Entry, Hold, Store, Tip
from service.store.opening import open_store

LEARNER = {
    "kind": "pomdr",
    "config": {"kernel": {"kind": "gaussian", "sigma": 0.5}, "budget": 400, "norm_bound": 25.0},
}


@dataclass(slots=True)
class Written:
    rounds: int = 0
    journal: int = 0
    snapshots: int = 0
    snapshot_count: int = 0

    @property
    def a_round(self) -> float:
        return (self.journal + self.snapshots) / max(1, self.rounds)


class CountingStore:
    """A store that counts what is written to it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.written = Written()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(
        self, name: str, tip: Tip, entries: Sequence[Entry], holds: Sequence[Hold] = (), progress: Applied | None = None
    ) -> Any:
        answer = await self._store.commit(name, tip, entries, holds, progress)
        if isinstance(answer, Committed):
            self.written.rounds += sum(entry.count for entry in entries)
            self.written.journal += sum(len(entry.blob) + len(entry.id) + len(entry.tip.digest) for entry in entries)
        return answer

    async def snapshot(self, name: str, tip: Tip, blob: bytes) -> bool:
        self.written.snapshots += len(blob)
        self.written.snapshot_count += 1
        return await self._store.snapshot(name, tip, blob)


async def measure(url: str, rounds: int) -> Written:
    """`rounds` rounds of MAGIC, each predicted and then settled, with the default settings."""
    X, y = magic()
    store = CountingStore(open_store(url))
    await store.open()
    worker = make_worker(Settings(store=url), store)  # type: ignore[arg-type]
    await worker.sessions.create(
        Definition("journal", LearnerSpec.model_validate(LEARNER), is_strict=True, scale="none")
    )
    for row in range(rounds):
        at = row % len(y)
        prediction = await worker.rounds.predict("journal", X[at].tolist())
        await worker.rounds.update("journal", Report(float(y[at]), prediction.id))
    await worker.close()
    await store.close()
    return store.written


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=19_020)
    parser.add_argument("--store", default="sqlite://", help="default: in memory; an empty one is needed")
    options = parser.parse_args(arguments)
    found = asyncio.run(measure(options.store, options.rounds))
    print(f"{'rounds':>8}{'journal':>12}{'snapshots':>12}{'number':>8}{'bytes a round':>15}")
    print(f"{found.rounds:8}{found.journal:12}{found.snapshots:12}{found.snapshot_count:8}{found.a_round:15.1f}")


if __name__ == "__main__":
    main()
