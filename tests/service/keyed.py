"""A service that asks for keys, and keys of every kind."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from service.keys.key import Key, KeyScope, Rate, encode_key, mint
from service.store.key_store import KeepsKeys, KeyStore
from service.store.opening import open_store
from tests.service.api import Api


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
