"""What a store holds of a session, read without the service."""

from __future__ import annotations

import asyncio

from service.hosted import HostedLearner
from service.residents import parse_settings
from service.store.base import Reading, open_store


def read(url: str, name: str) -> Reading:
    async def reading() -> Reading:
        store = open_store(url)
        await store.open()
        try:
            found = await store.read(name)
        finally:
            await store.close()
        assert isinstance(found, Reading)
        return found

    return asyncio.run(reading())


def replay(reading: Reading) -> HostedLearner:
    """The snapshot, and the journal after it, one entry after the other."""
    settings = parse_settings(reading.head)
    blob = reading.snapshot
    hosted = HostedLearner(settings) if blob is None else HostedLearner.from_bytes(settings, blob)
    for event in reading.events:
        hosted.replay(event.blob)
    return hosted
