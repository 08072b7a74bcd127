"""A service that asks for keys, and keys of every kind."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from okl.errors import StoreUnavailable
from service.keys.key import Key, KeyScope, Rate, encode_key, mint
from service.store.key_store import Grant, KeepsKeys, KeyRecords, KeyStore
from service.store.opening import open_store
from tests.service.api import Api


class Shelf:
    """A store of keys that counts how often it is read, and may fail."""

    def __init__(self) -> None:
        self.keys = self
        self.now = KeyRecords("", {})
        self.reads = 0
        self.fails = False
        self.answers = asyncio.Event()
        self.answers.set()

    def put(self, *made: Key) -> None:
        self.now = KeyRecords(f"v{self.reads}-{len(made)}", {key.id: encode_key(key) for key in made})

    async def read(self, version: str) -> KeyRecords | None:
        self.reads += 1
        await asyncio.sleep(0)
        await self.answers.wait()
        if self.fails:
            raise StoreUnavailable("gone")
        return None if version == self.now.version else self.now

    async def add(self, id: str, record: bytes, version: str) -> bool:
        raise AssertionError("a worker only reads")

    async def revoke(self, id: str, version: str) -> bool:
        raise AssertionError("a worker only reads")

    async def take(self, id: str, owed: float, wanted: float, rate: float, burst: float) -> Grant:
        raise AssertionError("a worker only reads")


@dataclass(frozen=True, slots=True)
class Made:
    key: Key
    text: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.text}"}

    @property
    def secret(self) -> str:
        return self.text.split("_", 2)[2]


@asynccontextmanager
async def keys_in(url: str) -> AsyncIterator[KeyStore]:
    store = open_store(url)
    assert isinstance(store, KeepsKeys)
    await store.open()
    try:
        yield store.keys
    finally:
        await store.close()


async def make(url: str, scope: KeyScope = KeyScope.ADMIN, *, rate: Rate | None = None, **more: Any) -> Made:
    """A key in the store."""
    key, text = mint("test", scope, now=time.time(), rate=rate, **more)
    async with keys_in(url) as keys:
        assert await keys.add(key.id, encode_key(key), secrets.token_hex(8))
    return Made(key, text)


async def revoke(url: str, made: Made) -> None:
    async with keys_in(url) as keys:
        assert await keys.revoke(made.key.id, secrets.token_hex(8))


async def look_again(api: Api) -> None:
    """As after two seconds."""
    await api.app.state.keyring.refresh()
