"""A process that writes to a session for ever, or until it has appended its share: raced and killed by the tests."""

from __future__ import annotations

import asyncio
import sys
import time

from service.store.base import Appended, Behind, Event, Store, Waiting, open_store


async def append_all(store: Store, writer: str, events: int, snapshot_every: int) -> None:
    round = 0
    for number in range(events):
        id = f"{writer}-{number}"
        while True:
            now = time.time()
            held = await store.hold("raced", "uid", round, Waiting(id, b"x", now + 60), now=now, limit=1_000_000)
            event = Event(round + 1, f"{id} at {round + 1}".encode(), id, b"answer")
            answer = held if isinstance(held, Behind) else await store.append("raced", "uid", round, [event], now=now)
            if isinstance(answer, Behind):
                round = answer.reading.head.round
                continue
            assert isinstance(answer, Appended), answer
            round += 1
            break
        if round % snapshot_every == 0:
            await store.snapshot("raced", "uid", round, str(round).encode(), now=time.time())


async def main(url: str, writer: str, events: int, snapshot_every: int) -> None:
    store = open_store(url)
    await store.open()
    print("started", flush=True)
    await append_all(store, writer, events, snapshot_every)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
