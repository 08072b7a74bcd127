"""Parsing of strings as numbers, times and words, and hashes that are the same in every process."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime

_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]{0,300})(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII)
_WORD = re.compile(r"\w+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

MAX_WORDS = 1000
"""Most words of one text that are used."""

TIME_COLUMNS = 7


def number_in(text: str) -> float | None:
    """The number that a string spells in JSON style, else None, for example for a code that begins with a zero."""
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def time_in(text: str) -> datetime | None:
    """The time that a string spells in ISO 8601, in UTC if it has no offset; else None."""
    if not _TIME.fullmatch(text):
        return None
    try:
        time = datetime.fromisoformat(text.replace(",", "."))
    except ValueError:
        return None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def cycles(time: datetime) -> list[float]:
    """Days since 1970, in UTC; then hour, weekday and day of the year, in the time's own zone, as points on a circle."""
    seconds = time.hour * 3600 + time.minute * 60 + time.second
    start = time.replace(month=1, day=1, hour=0, minute=0, second=0, microsecond=0)
    turns = (
        seconds / 86400.0,
        (time.weekday() + seconds / 86400.0) / 7.0,
        ((time - start).days + seconds / 86400.0) / 365.2425,
    )
    circle = [part(2.0 * math.pi * turn) for turn in turns for part in (math.cos, math.sin)]
    return [(time - _EPOCH).total_seconds() / 86400.0, *circle]


def words(text: str) -> Iterator[str]:
    """The words of a text in lower case, at most MAX_WORDS."""
    for i, match in enumerate(_WORD.finditer(text)):
        if i == MAX_WORDS:
            return
        yield match[0].lower()


def place_of(key: str, columns: int) -> tuple[int, float]:
    """A column and a sign for this key, by hashing: sums over keys then preserve inner products in expectation.

    References: [weinberger2009] section 2.
    """
    code = zlib.crc32(key.encode("utf-8", "surrogatepass"))
    # The low bits of a CRC differ as the keys do; a multiplication mixes them into the high bits.
    code = (code * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    return (code >> 33) % columns, 1.0 if code >> 63 else -1.0
