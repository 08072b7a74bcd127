"""okl keys create, list, revoke: directly on the store, so that creating the first key needs no key."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, TypeVar

from okl.errors import ConfigurationError

from ..keys.audit import Audit, facts_of
from ..keys.key import MAX_NAME, Key, KeyScope, Rate, decode_key, encode_key, mint
from ..store.key_store import KeepsKeys, KeyStore
from .stores import opened

T = TypeVar("T")

_UNITS: Final = {"m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SPAN = re.compile(r"([0-9]{1,6})([mhd])")
_RATE = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,6})?)(?:/s)?(?:,([0-9]{1,7}))?")
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def create(
    store: str, name: str, scope: str, *, prefix: str = "", expires: str | None = None, rate: str | None = None
) -> tuple[Key, str]:
    """A new key in the store, and its text. Raises ConfigurationError, LimitReached, StoreError."""
    now = time.time()
    if not name.isprintable() or not 0 < len(name) <= MAX_NAME:
        raise ConfigurationError(f"A key's name has 1 to {MAX_NAME} printable characters.")
    if prefix and not _PREFIX.fullmatch(prefix):
        raise ConfigurationError("--prefix has letters, digits, dots, underscores and dashes, as names of sessions do.")
    expires_at = None if expires is None else now + seconds_of(expires)
    allowed = None if rate is None else rate_of(rate)

    async def added(keys: KeyStore) -> tuple[Key, str]:
        while True:
            key, text = mint(name, KeyScope[scope.upper()], prefix=prefix, now=now, expires_at=expires_at, rate=allowed)
            if await keys.add(key.id, encode_key(key), secrets.token_hex(8)):
                return key, text

    key, text = _with_keys(store, added)
    _note("keys create", key.id)
    return key, text


def all_keys(store: str) -> list[Key]:
    """The keys in the store, oldest first; unreadable ones are left out, as in the service."""

    async def found(keys: KeyStore) -> list[Key]:
        stored = await keys.read("")
        decoded: list[Key] = []
        for id, record in ({} if stored is None else stored.records).items():
            try:
                decoded.append(decode_key(id, record))
            except ValueError:
                continue
        return sorted(decoded, key=lambda key: (key.created_at, key.id))

    return _with_keys(store, found)


def revoke(store: str, id: str) -> bool:
    """Revoke a key by its id or its whole text; False if there is no such key."""
    found = re.fullmatch(r"(?:okl_)?([a-z2-7]{8})(?:_.*)?", id)
    if found is None:
        raise ConfigurationError("The id of a key has eight characters; `okl keys list` shows them.")
    existed = _with_keys(store, lambda keys: keys.revoke(found[1], secrets.token_hex(8)))
    if existed:
        _note("keys revoke", found[1])
    return existed


def was_one_made(store: str) -> bool:
    """Whether the store ever had a key, even if it is revoked by now; then keys are required."""

    async def found(keys: KeyStore) -> bool:
        return await keys.read("") is not None

    return _with_keys(store, found)


def seconds_of(span: str) -> float:
    """`90d`, `12h` or `30m`. Raises ConfigurationError."""
    found = _SPAN.fullmatch(span)
    if found is None or not int(found[1]):
        raise ConfigurationError("--expires is a number of minutes, hours or days: 30m, 12h, 90d.")
    return int(found[1]) * _UNITS[found[2]]


def rate_of(text: str) -> Rate:
    """`50` or `50,200`: requests per second, and the burst, by default the requests of two seconds."""
    found = _RATE.fullmatch(text)
    try:
        if found is None:
            raise ValueError("malformed")
        per_s = float(found[1])
        return Rate(per_s, max(1.0, 2.0 * per_s) if found[2] is None else float(found[2]))
    except ValueError as error:
        raise ConfigurationError(f"--rate is requests per second, and a burst: 50 or 50,200: {error}.") from None


def line_of(key: Key) -> tuple[str, ...]:
    """A key's cells: id, name, scope, prefix, rate, made, expires."""
    rate = "" if key.rate is None else f"{key.rate.per_s:g}/s, burst {key.rate.burst:g}"
    expires = "" if key.expires_at is None else _day(key.expires_at)
    if key.is_expired(time.time()):
        expires += " (over)"
    return key.id, key.name, key.scope.word, key.prefix, rate, _day(key.created_at), expires


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def _note(act: str, id: str) -> None:
    Audit().done(facts_of("none", "okl", act, [], "command") | {"made" if act == "keys create" else "revoked": id}, 200)


def _with_keys(url: str, work: Callable[[KeyStore], Awaitable[T]]) -> T:
    async def run() -> T:
        async with opened(url) as store:
            if not isinstance(store, KeepsKeys):
                raise ConfigurationError("This store keeps no keys.")
            return await work(store.keys)

    return asyncio.run(run())
