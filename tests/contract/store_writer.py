"""A process that writes to a session for ever, or until it has committed its share; the tests race and kill it."""

from __future__ import annotations

import asyncio
import sys

from service.store.base import Applied, Behind, Committed, Entry, Gone, Hold, Store, Tip
from service.store.opening import open_store

NAME = "raced"
FIRST = Tip(0, b"the first digest")


async def write_all(store: Store, writer: str, rounds: int, snapshot_every: int) -> None:
    """Write a prediction and its truth each round, like a worker that replays what it missed."""
    tip = FIRST
    for number in range(rounds):
        id = f"{writer}-{number}"
        tip = await commit(store, tip, [], Hold(id, b"forecast", 60.0))
        tip = await commit(store, tip, [id], None)
        if tip.round % snapshot_every == 0:
            await store.snapshot(NAME, tip, str(tip.round).encode())


async def commit(store: Store, tip: Tip, ids: list[str], hold: Hold | None) -> Tip:
    """Commit at the session's current tip, retrying if it moves. Returns the tip afterwards."""
    while True:
        entries = [make(tip, id) for id in ids]
        answer = await store.commit(NAME, tip, entries, [] if hold is None else [hold])
        match answer:
            case Behind(reading):
                tip = reading.head.tip
            case Committed():
                return entries[-1].tip if entries else tip
            case Applied() | Gone():
                raise AssertionError(answer)


def make(tip: Tip, id: str) -> Entry:
    blob = f"{id} at {tip.round + 1}".encode()
    return Entry.after(tip, 1, id, blob, f"answer to {id}".encode())


async def main(url: str, writer: str, rounds: int, snapshot_every: int) -> None:
    store = open_store(url)
    await store.open()
    print("started", flush=True)
    await write_all(store, writer, rounds, snapshot_every)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
