r"""The bytes of journal entries and waiting predictions: little-endian, self-delimiting, versioned.

A *round* is what `POST /update` commits, a *block* what `POST /sessions/{s}/rounds` commits (n rounds that one `run` of the
learner played). Both hold what a replay needs and what it is checked against: inputs, truths, the forecasts at play,
the recorded choices. `note` is JSON that a later round relies on: the schema that the first round fixed.

    round   u8 version, u8 kind = 0, f64 at, f64 y, f64 issued, f64 value, bytes choices, bytes note, f64[d] x, lags, crc
    block   u8 version, u8 kind = 1, f64 at, u32 n, bytes choices, bytes note, f64[n] y, f64[n] values, f64[n d] X, crc
    class   as round with kind = 2, and u32 label after f64 value
    waiting u8 version, u64 t, f64 value, f64 probability (NaN: none), bytes note, f64[d] x, lags, probabilities, crc

A *class* is a round of a learner of classes: `issued` is the probability that the client was given for the truth, `label`
the class that it was told. `probabilities` are the f64[K] of a waiting prediction of such a learner.
`bytes` is u32 length and the bytes; `crc` the u32 CRC-32 of all before it: damage is refused, not learned. `lags` are the
f64[k] that went with x, in the learner's terms; the session's spec says how many, and most have none. A block needs none:
they are the truths before each of its rows.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass

import numpy as np

from okl_core.types import F64, Forecast
from service.errors import StateCorrupt

VERSION = 1
_ROUND, _BLOCK, _CLASS = 0, 1, 2
_HEAD = struct.Struct("<BBd")
_ROUND_NUMBERS = struct.Struct("<ddd")
_WAITING = struct.Struct("<BQdd")
_U32 = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class RoundEntry:
    """`issued` is the value that the client was given, `value` the forecast at play: they differ when the truth is late.

    With `label`, the class that the client was told, `issued` is the probability that it was given for the truth.
    """

    at: float
    x: F64
    y: float
    issued: float
    value: float
    choices: bytes = b""
    note: bytes = b""
    lags: F64 | None = None
    label: int | None = None


@dataclass(frozen=True, slots=True)
class BlockEntry:
    """X of shape (n, d), y and values of shape (n,)."""

    at: float
    X: F64
    y: F64
    values: F64
    choices: bytes = b""
    note: bytes = b""


@dataclass(frozen=True, slots=True)
class WaitingEntry:
    """`t` is the round at which the prediction was made."""

    t: int
    forecast: Forecast
    x: F64
    note: bytes = b""
    lags: F64 | None = None


def encode_round(entry: RoundEntry) -> bytes:
    return _sealed(
        _HEAD.pack(VERSION, _ROUND if entry.label is None else _CLASS, entry.at),
        _ROUND_NUMBERS.pack(entry.y, entry.issued, entry.value),
        b"" if entry.label is None else _U32.pack(entry.label),
        _sized(entry.choices),
        _sized(entry.note),
        entry.x.tobytes(),
        b"" if entry.lags is None else entry.lags.tobytes(),
    )


def encode_block(entry: BlockEntry) -> bytes:
    return _sealed(
        _HEAD.pack(VERSION, _BLOCK, entry.at),
        _U32.pack(len(entry.y)),
        _sized(entry.choices),
        _sized(entry.note),
        entry.y.tobytes(),
        entry.values.tobytes(),
        entry.X.tobytes(),
    )


def decode_entry(blob: bytes, k: int = 0) -> RoundEntry | BlockEntry:
    """An entry of a learner with k lags. Raises StateCorrupt for bytes of another format."""
    blob = _unsealed(blob, "A journal entry")
    try:
        version, kind, at = _HEAD.unpack_from(blob)
        if version != VERSION or kind not in (_ROUND, _BLOCK, _CLASS):
            raise StateCorrupt(
                f"A journal entry has version {version} and kind {kind}; this build reads version {VERSION}."
            )
        if kind != _BLOCK:
            y, issued, value = _ROUND_NUMBERS.unpack_from(blob, _HEAD.size)
            end, label = _HEAD.size + _ROUND_NUMBERS.size, None
            if kind == _CLASS:
                (label,) = _U32.unpack_from(blob, end)
                end += _U32.size
            choices, end = _unsized(blob, end)
            note, end = _unsized(blob, end)
            x, lags = _split(np.frombuffer(blob, np.float64, offset=end), k, "lags")
            return RoundEntry(at, x, y, issued, value, choices, note, lags, label)
        (n,) = _U32.unpack_from(blob, _HEAD.size)
        choices, end = _unsized(blob, _HEAD.size + _U32.size)
        note, end = _unsized(blob, end)
        y, values = np.frombuffer(blob, np.float64, count=2 * n, offset=end).reshape(2, n)
        X = np.frombuffer(blob, np.float64, offset=end + 16 * n).reshape(n, -1)
        return BlockEntry(at, X, y, values, choices, note)
    except (struct.error, ValueError) as error:
        raise StateCorrupt(f"A journal entry cannot be read: {error}.") from error


def encode_waiting(entry: WaitingEntry) -> bytes:
    probability = math.nan if entry.forecast.probability is None else entry.forecast.probability
    head = _WAITING.pack(VERSION, entry.t, entry.forecast.value, probability)
    lags = b"" if entry.lags is None else entry.lags.tobytes()
    probabilities = np.array(entry.forecast.probabilities or (), dtype=np.float64).tobytes()
    return _sealed(head, _sized(entry.note), entry.x.tobytes(), lags, probabilities)


def decode_waiting(blob: bytes, k: int = 0, classes: int = 0) -> WaitingEntry:
    """A waiting prediction of a learner with k lags, or of classes. Raises StateCorrupt for bytes of another format."""
    blob = _unsealed(blob, "A waiting prediction")
    try:
        version, t, value, probability = _WAITING.unpack_from(blob)
        if version != VERSION:
            raise StateCorrupt(f"A waiting prediction has version {version}; this build reads version {VERSION}.")
        note, end = _unsized(blob, _WAITING.size)
        x, many = _split(np.frombuffer(blob, np.float64, offset=end), classes, "probabilities")
        x, lags = _split(x, k, "lags")
    except (struct.error, ValueError) as error:
        raise StateCorrupt(f"A waiting prediction cannot be read: {error}.") from error
    probabilities = None if many is None else tuple(many.tolist())
    forecast = Forecast(value, None if math.isnan(probability) else probability, probabilities)
    return WaitingEntry(t, forecast, x, note, lags)


def _split(numbers: F64, n: int, what: str) -> tuple[F64, F64 | None]:
    """An input, and the n numbers after it."""
    if not n:
        return numbers, None
    if len(numbers) <= n:
        raise ValueError(f"{len(numbers)} numbers are not an input with {n} {what}")
    return numbers[:-n], numbers[-n:]


def _sealed(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return body + _U32.pack(zlib.crc32(body))


def _unsealed(blob: bytes, what: str) -> bytes:
    body = blob[: -_U32.size]
    if blob[-_U32.size :] != _U32.pack(zlib.crc32(body)):
        raise StateCorrupt(f"{what} was damaged: its checksum does not match.")
    return body


def _sized(data: bytes) -> bytes:
    return _U32.pack(len(data)) + data


def _unsized(blob: bytes, start: int) -> tuple[bytes, int]:
    (length,) = _U32.unpack_from(blob, start)
    end = start + _U32.size + length
    return blob[start + _U32.size : end], end
