"""An API key: its permissions, its text, and its record in the store.

`okl_<id>_<secret>`: the id is public and has eight characters; the secret has 32 random bytes and is shown once, on creation.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final
from urllib.parse import unquote

ID_BYTES, SECRET_BYTES = 5, 32
MAX_NAME = 64
MAX_RATE, MAX_BURST = 1e6, 1e6

_TOKEN = re.compile(r"okl_([a-z2-7]{8})_([A-Za-z0-9_-]{43})")
_COOKIE = re.compile(r"([a-z2-7]{8})\.([0-9]{1,12})\.([0-9a-f]{64})")
SIGNED_IN_S: Final = 12 * 3_600
"""How long a browser stays signed in."""

_NOBODY: Final = bytes(32)
"""Compared for an unknown id, so that it takes as long as a wrong secret."""


def without_secrets(text: str) -> str:
    """The text with all keys in it reduced to their ids. If keys in it are percent-encoded, all of the text is decoded."""
    if "%" in text and _TOKEN.search(decoded := unquote(text)):
        text = decoded
    return _TOKEN.sub(r"okl_\1_...", text) if "okl_" in text else text


class KeyScope(IntEnum):
    """A key's permissions; each scope includes the one before it."""

    READ = 1
    WRITE = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests per second in the long run, and the largest burst. A request counts once for each of its rounds."""

    per_s: float
    burst: float

    def __post_init__(self) -> None:
        if not (0.0 < self.per_s <= MAX_RATE and 1.0 <= self.burst <= MAX_BURST):
            raise ValueError(
                f"a rate must be above 0 and at most {MAX_RATE:g}, its burst at least 1 and at most {MAX_BURST:g}"
            )


@dataclass(frozen=True, slots=True)
class Key:
    """The record of a key. Times are seconds since the epoch; the names of its sessions begin with `prefix`."""

    id: str
    name: str
    scope: KeyScope
    digest: bytes = field(repr=False)
    prefix: str = ""
    created_at: float = 0.0
    expires_at: float | None = None
    rate: Rate | None = None

    def is_expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at


def mint(
    name: str,
    scope: KeyScope,
    *,
    prefix: str = "",
    now: float,
    expires_at: float | None = None,
    rate: Rate | None = None,
) -> tuple[Key, str]:
    """A new key and its text, which has the secret and exists only now."""
    id = base64.b32encode(secrets.token_bytes(ID_BYTES)).decode().lower()
    text = f"okl_{id}_{secrets.token_urlsafe(SECRET_BYTES)}"
    return Key(id, name, scope, digest_of(text), prefix, now, expires_at, rate), text


def digest_of(text: str) -> bytes:
    """The digest of a key, the only trace of its secret in the store. A fast hash is enough: the secret has 256 random bits,
    while slow hashes protect passwords that people choose."""
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def id_in(text: str) -> str | None:
    """The id in the text of a key or in a cookie, genuine or not; None for other text."""
    found = _TOKEN.fullmatch(text) or _COOKIE.fullmatch(text)
    return None if found is None else found[1]


def is_genuine(key: Key | None, text: str) -> bool:
    """Whether `text` is this key, in constant time, also if the key is None."""
    expected = _NOBODY if key is None else key.digest
    return hmac.compare_digest(digest_of(text), expected) and key is not None


# -- the cookie of a browser that signed in -------------------------------------------------------------------------


def cookie_of(key: Key, now: float) -> tuple[str, int]:
    """The cookie that replaces the key in a browser, and its time to live in seconds, which ends with the key's."""
    until = now + SIGNED_IN_S if key.expires_at is None else min(now + SIGNED_IN_S, key.expires_at)
    return f"{key.id}.{int(until)}.{_signature(key.digest, key.id, int(until))}", max(int(until - now), 0)


def is_genuine_cookie(key: Key | None, cookie: str, now: float) -> bool:
    """Whether the cookie was made for this key and has not expired."""
    found = _COOKIE.fullmatch(cookie)
    if found is None:
        return False
    until = int(found[2])
    expected = _signature(_NOBODY if key is None else key.digest, found[1], until)
    return hmac.compare_digest(found[3], expected) and key is not None and now < until


def _signature(digest: bytes, id: str, until: int) -> str:
    return hmac.new(digest, f"okl cookie {id} {until}".encode(), hashlib.sha256).hexdigest()


# -- as it is stored --------------------------------------------------------------------------------------------------


def encode_key(key: Key) -> bytes:
    record: dict[str, Any] = {
        "name": key.name,
        "scope": key.scope.word,
        "digest": key.digest.hex(),
        "prefix": key.prefix,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "rate": None if key.rate is None else [key.rate.per_s, key.rate.burst],
    }
    return json.dumps(record).encode()


def decode_key(id: str, record: bytes) -> Key:
    """Decode a key's record. Raises ValueError for a malformed one."""
    try:
        fields = json.loads(record)
        digest = bytes.fromhex(fields["digest"])
        if len(digest) != hashlib.sha256().digest_size:
            raise ValueError("a digest of another length")
        rate = None if fields["rate"] is None else Rate(*map(float, fields["rate"]))
        expires_at = None if fields["expires_at"] is None else float(fields["expires_at"])
        scope, created_at = KeyScope[fields["scope"].upper()], float(fields["created_at"])
        return Key(id, str(fields["name"]), scope, digest, str(fields["prefix"]), created_at, expires_at, rate)
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise ValueError(f"not the record of a key: {type(error).__name__}") from error
