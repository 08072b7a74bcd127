"""The content of a session in its store, read without the service."""

from __future__ import annotations

import asyncio

from service.store.base import Reading
from service.store.opening import open_store
from tests.service import worker


def read(url: str, name: str) -> Reading:
    async def reading() -> Reading:
        store = open_store(url)
        await store.open()
        try:
            return await worker.read(store, name)
        finally:
            await store.close()

    return asyncio.run(reading())
