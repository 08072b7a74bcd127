r"""The bytes of journal entries, waiting predictions and remembered answers: little-endian, self-delimiting, versioned.

`POST /update` commits a *round*, `POST /sessions/{s}/rounds` a *block* (n rounds that one `run` of the learner played). Both
hold what a replay needs and is checked against: raw inputs, truths, the forecasts at play, the recorded choices, and the
arithmetic that computed them. `discovery` is JSON that later rounds rely on: a new label, and the config that a stage of the
warm-up found.

    round    u8 version, u8 kind = 0, u32 arithmetic, moment, f64 y, f64 issued, f64 value, f64 weight, f64 score (NaN: none),
             f64 threshold, u32 lag, bytes trivial, bytes choices, bytes discovery, bytes x, lags
    block    u8 version, u8 kind = 1, u32 arithmetic, moment, u32 n, u32 m, bytes choices, columns y, f64[n] values,
             f64[m] scores, f64[m] thresholds, inputs
    class    as round with kind = 2, and u32 label and f64 sure after u32 lag
    classes  as block with kind = 5, and u32[n] labels and f64[n] given before the inputs
    weighted as block or classes with 16 added to the kind, and columns weights right before the inputs
    noted    u8 version, u8 kind = 3, bytes note, then one of those above
    waiting  u8 version, u64 t, f64 at, f64[4] trivial, f64 value, f64 probability (NaN: none), f64 threshold (NaN: none),
             u32 lags, u32 classes (2^32 - 1: none known yet), bytes x, lags, probabilities, seal
    answer   JSON, seal

A `moment` is encoded as in `service.session.moment`; `at` is a time on the same clock. `trivial` holds the two trivial
forecasters' values and probabilities (NaN: none) at the time of the prediction; a round leaves it empty if they have not
changed since.

A *class* entry is a round of a learner of classes: `issued` is the probability that the client was given for the truth,
`label` the predicted class, and `sure` its probability. In a *classes* block `labels` are the predicted classes, whose
probabilities are the values, and `given` are the probabilities of the truths. A *noted* entry is of a challenger's journal;
its length-prefixed note is encoded as in `service.session.pairing`. `probabilities` (f64[K]) belong to a waiting prediction
of a learner of classes. `bytes` is a u32 length and the bytes. Score, threshold and lag are those of a `Promise`; in a
block, m is n with intervals and 0 without. `x` is encoded by `okl_core.records.record.to_bytes`; `inputs` are u32 d and the
columns of n rows of d numbers each, or u32 0 and each input as bytes x. `columns` are encoded by `service.session.decimals`.
`lags` are the f64[k] that went with x, in the learner's terms; most learners have none. A block needs none: they are the
truths before each of its rows. `arithmetic` is the CRC-32 of the string that names the arithmetic of the round.

An entry needs no checksum: the digests of the journal's chain cover its bytes. A `seal` is the CRC-32 of the session's
identity, the id and everything before it, so that damage, or the bytes of another session, are refused.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from okl.errors import StateCorrupt
from okl_core.errors import StateFormatError
from okl_core.monitoring.plain import PlainForecast
from okl_core.records.record import Raw, Raws, from_bytes, to_bytes
from okl_core.types import F64, Forecast

from .coverage import Promise
from .decimals import pack_columns, unpack_columns
from .moment import MOMENT_BYTES, NO_MOMENT, Moment, unpack_moment
from .scorecard import Issued

VERSION = 1
_ROUND, _BLOCK, _CLASS, _NOTED, _CLASSES = 0, 1, 2, 3, 5
_WEIGHTED = 16
"""Added to the kind of a block whose rounds have weights."""
_BLOCKS = (_BLOCK, _CLASSES, _BLOCK + _WEIGHTED, _CLASSES + _WEIGHTED)
_HEAD = struct.Struct("<BBI")
_ROUND_NUMBERS = struct.Struct("<ddddddI")
_WAITING = struct.Struct("<BQddddddddII")
_NONE_YET = 2**32 - 1
"""Number of classes of a forecast by a learner of classes that knows none."""
_CLASS_TOLD = struct.Struct("<Id")
_PLAIN = struct.Struct("<dddd")
_U32 = struct.Struct("<I")
_COUNTS = struct.Struct("<II")
_NOTE_HEAD = struct.Struct("<BBI")


Pair = tuple[PlainForecast, PlainForecast]
"""The forecasts of the two trivial forecasters."""


class RoundEntry(NamedTuple):
    """One round. `issued` is what the client was given, `value` the forecast at play; they differ for late truths."""

    x: Raw
    y: float
    issued: Issued
    value: float
    choices: bytes = b""
    discovery: bytes = b""
    lags: F64 | None = None
    arithmetic: int = 0
    weight: float = 1.0
    promise: Promise | None = None
    trivial: Pair | None = None
    moment: Moment = NO_MOMENT


class NamedClasses(NamedTuple):
    """What a learner of classes said in n rounds: the predicted classes, and the probabilities of the truths, shape (n,)."""

    labels: NDArray[np.uint32]
    given: F64

    @classmethod
    def of(cls, probabilities: F64, y: F64) -> NamedClasses:
        """From the probabilities of all classes, shape (n, K), and the indices of the truths."""
        return cls(probabilities.argmax(axis=1).astype(np.uint32), probabilities[np.arange(len(y)), y.astype(np.intp)])


@dataclass(frozen=True, slots=True)
class BlockEntry:
    """A block of n rounds: y and values of shape (n,); `promises` are scores and thresholds, shape (2, n), with intervals.

    `classes` is None unless the learner is one of classes; `values` are then the probabilities of the predicted ones.
    `weight` of shape (n,) is None if all weights are 1.
    """

    raws: Raws
    y: F64
    values: F64
    choices: bytes = b""
    arithmetic: int = 0
    promises: F64 | None = None
    moment: Moment = NO_MOMENT
    classes: NamedClasses | None = None
    weight: F64 | None = None

    def issued(self, i: int) -> Issued:
        """The forecast of a row, as far as the metrics need it."""
        value = self.values.item(i)
        if self.classes is None:
            return Issued(value)
        return Issued(self.classes.given.item(i), self.classes.labels.item(i), value)


class WaitingEntry(NamedTuple):
    """A prediction made at round `t`, at time `at`; `trivial` are the trivial forecasters' forecasts then."""

    t: int
    forecast: Forecast
    x: Raw
    lags: F64 | None = None
    threshold: float | None = None
    at: float = 0.0
    trivial: Pair | None = None


_NOTHING = PlainForecast(math.nan)
NO_PROMISE = Promise(math.nan, math.nan, 0)


def encode_round(entry: RoundEntry) -> bytes:
    issued, label, sure = entry.issued
    return b"".join(
        (
            _HEAD.pack(VERSION, _ROUND if label is None else _CLASS, entry.arithmetic),
            entry.moment.packed(),
            _ROUND_NUMBERS.pack(entry.y, issued, entry.value, entry.weight, *(entry.promise or NO_PROMISE)),
            b"" if label is None else _CLASS_TOLD.pack(label, sure),
            _sized(b"" if entry.trivial is None else _PLAIN.pack(*_flat(entry.trivial))),
            _sized(entry.choices),
            _sized(entry.discovery),
            _sized(to_bytes(entry.x)),
            b"" if entry.lags is None else entry.lags.tobytes(),
        )
    )


def encode_block(entry: BlockEntry) -> bytes:
    kind = (_BLOCK if entry.classes is None else _CLASSES) + (0 if entry.weight is None else _WEIGHTED)
    return b"".join(
        (
            _HEAD.pack(VERSION, kind, entry.arithmetic),
            entry.moment.packed(),
            _U32.pack(len(entry.y)),
            _U32.pack(0 if entry.promises is None else len(entry.y)),
            _sized(entry.choices),
            pack_columns(entry.y[:, np.newaxis]),
            entry.values.tobytes(),
            b"" if entry.promises is None else entry.promises.tobytes(),
            b""
            if entry.classes is None
            else entry.classes.labels.astype("<u4").tobytes() + entry.classes.given.tobytes(),
            b"" if entry.weight is None else pack_columns(entry.weight[:, np.newaxis]),
            encode_inputs(entry.raws),
        )
    )


def encode_inputs(raws: Raws) -> bytes:
    """Encode the inputs of several rounds."""
    X = _as_matrix(raws)
    return _records(raws) if X is None else _U32.pack(X.shape[1]) + pack_columns(X)


def plain_inputs(raws: Raws) -> bytes:
    """The bytes by which inputs are recognised: they do not depend on how blocks store numbers."""
    X = _as_matrix(raws)
    return _records(raws) if X is None else _U32.pack(X.shape[1]) + X.tobytes()


def decode_inputs(blob: bytes, start: int, n: int) -> Raws:
    """Decode n inputs. Raises struct.error, ValueError, StateFormatError."""
    (d,) = _U32.unpack_from(blob, start)
    start += _U32.size
    if d:
        return unpack_columns(blob, start, n, d)[0]
    raws: list[Raw] = []
    for _ in range(n):
        x, start = _unsized(blob, start)
        raws.append(from_bytes(x))
    return raws


def with_note(note: bytes, blob: bytes) -> bytes:
    """Prefix an entry with the note that it has in a challenger's journal."""
    return _NOTE_HEAD.pack(VERSION, _NOTED, len(note)) + note + blob


def split_note(blob: bytes) -> tuple[bytes | None, bytes]:
    """Split a journal entry into its note, None unless it is a challenger's, and the rest. Raises StateCorrupt."""
    try:
        version, kind, length = _NOTE_HEAD.unpack_from(blob)
    except struct.error as error:
        raise StateCorrupt(f"A journal entry cannot be read: {error}.") from error
    if (version, kind) != (VERSION, _NOTED):
        return None, blob
    end = _NOTE_HEAD.size + length
    if end > len(blob):
        raise StateCorrupt("A journal entry cannot be read: it ends in the middle.")
    return blob[_NOTE_HEAD.size : end], blob[end:]


def decode_entry(blob: bytes) -> RoundEntry | BlockEntry:
    """Decode a journal entry without its note, if any. Raises StateCorrupt for bytes of another format."""
    _, blob = split_note(blob)
    try:
        version, kind, arithmetic = _HEAD.unpack_from(blob)
        if version != VERSION or kind not in (_ROUND, _CLASS, *_BLOCKS):
            raise StateCorrupt(
                f"A journal entry of version {version} and kind {kind}; this build reads others, of version {VERSION}."
            )
        moment, start = unpack_moment(blob, _HEAD.size), _HEAD.size + MOMENT_BYTES
        if kind in _BLOCKS:
            return _decode_block(blob, start, kind, arithmetic, moment)
        y, issued, value, weight, *promised = _ROUND_NUMBERS.unpack_from(blob, start)
        promise = None if math.isnan(promised[0]) else Promise(*promised)
        end, label, sure = start + _ROUND_NUMBERS.size, None, math.nan
        if kind == _CLASS:
            label, sure = _CLASS_TOLD.unpack_from(blob, end)
            end += _CLASS_TOLD.size
        plain, end = _unsized(blob, end)
        trivial = _trivial(*_PLAIN.unpack(plain)) if plain else None
        choices, end = _unsized(blob, end)
        discovery, end = _unsized(blob, end)
        x, end = _unsized(blob, end)
        lags, raw = _numbers(blob, end), from_bytes(x)
        told = Issued(issued, label, sure)
        return RoundEntry(raw, y, told, value, choices, discovery, lags, arithmetic, weight, promise, trivial, moment)
    except (struct.error, ValueError, StateFormatError) as error:
        raise StateCorrupt(f"A journal entry cannot be read: {error}.") from error


def _decode_block(blob: bytes, start: int, kind: int, arithmetic: int, moment: Moment) -> BlockEntry:
    n, m = _COUNTS.unpack_from(blob, start)
    choices, end = _unsized(blob, start + _COUNTS.size)
    y, end = unpack_columns(blob, end, n, 1)
    values = np.frombuffer(blob, np.float64, count=n, offset=end)
    promises = np.frombuffer(blob, np.float64, count=2 * m, offset=end + 8 * n).reshape(2, m) if m else None
    end += 8 * n + 16 * m
    classes = weight = None
    if kind & ~_WEIGHTED == _CLASSES:
        labels = np.frombuffer(blob, "<u4", count=n, offset=end)
        classes = NamedClasses(labels, np.frombuffer(blob, np.float64, count=n, offset=end + 4 * n))
        end += 12 * n
    if kind & _WEIGHTED:
        weights, end = unpack_columns(blob, end, n, 1)
        weight = weights[:, 0]
    return BlockEntry(
        decode_inputs(blob, end, n), y[:, 0], values, choices, arithmetic, promises, moment, classes, weight
    )


def _flat(trivial: Pair | None) -> tuple[float, float, float, float]:
    """Return values and probabilities in stored order, NaN for what is missing."""
    (a, p), (b, q) = trivial or (_NOTHING, _NOTHING)
    return a, math.nan if p is None else p, b, math.nan if q is None else q


def _trivial(a: float, p: float, b: float, q: float) -> Pair | None:
    if math.isnan(a):
        return None
    return PlainForecast(a, None if math.isnan(p) else p), PlainForecast(b, None if math.isnan(q) else q)


def encode_waiting(identity: bytes, id: str, entry: WaitingEntry) -> bytes:
    forecast = entry.forecast
    probability = math.nan if forecast.probability is None else forecast.probability
    threshold = math.nan if entry.threshold is None else entry.threshold
    lags, known = (0 if part is None else len(part) for part in (entry.lags, forecast.probabilities))
    classes = _NONE_YET if forecast.probabilities == () else known
    body = b"".join(
        (
            _WAITING.pack(
                VERSION, entry.t, entry.at, *_flat(entry.trivial), forecast.value, probability, threshold, lags, classes
            ),
            _sized(to_bytes(entry.x)),
            b"" if entry.lags is None else entry.lags.tobytes(),
            struct.pack(f"<{known}d", *(forecast.probabilities or ())),
        )
    )
    return body + _seal(identity, id, body)


def decode_waiting(identity: bytes, id: str, blob: bytes) -> WaitingEntry:
    """Decode the prediction that waits under this id. Raises StateCorrupt for damaged bytes, or bytes of another format."""
    body = _unsealed(identity, id, blob)
    try:
        version, t, at, *trivial, value, probability, threshold, k, classes = _WAITING.unpack_from(body)
        if version != VERSION:
            raise StateCorrupt(f"A waiting prediction has version {version}; this build reads version {VERSION}.")
        x, end = _unsized(body, _WAITING.size)
        known = 0 if classes == _NONE_YET else classes
        numbers = np.frombuffer(body, np.float64, count=k + known, offset=end)
        raw = from_bytes(x)
    except (struct.error, ValueError, StateFormatError) as error:
        raise StateCorrupt(f"A waiting prediction cannot be read: {error}.") from error
    probabilities = tuple(numbers[k:].tolist()) if classes else None
    forecast = Forecast(value, None if math.isnan(probability) else probability, probabilities)
    lags = numbers[:k] if k else None
    return WaitingEntry(t, forecast, raw, lags, None if math.isnan(threshold) else threshold, at, _trivial(*trivial))


def encode_answer(identity: bytes, id: str, document: bytes) -> bytes:
    return document + _seal(identity, id, document)


def decode_answer(identity: bytes, id: str, blob: bytes) -> bytes:
    """Return the document remembered under this id. Raises StateCorrupt."""
    return _unsealed(identity, id, blob)


def _as_matrix(raws: Raws) -> F64 | None:
    """The inputs of n rounds, shape (n, d); None unless all are rows of d numbers."""
    if isinstance(raws, np.ndarray):
        return raws
    if len(raws) == 1 and not isinstance(row := raws[0], dict) and len(row):
        return row[np.newaxis]  # a faster path for a single round
    rows = [raw for raw in raws if not isinstance(raw, dict)]
    alike = len(rows) == len(raws) and rows and (d := len(rows[0])) and all(len(row) == d for row in rows)
    return np.array(rows) if alike else None


def _records(raws: Raws) -> bytes:
    return _U32.pack(0) + b"".join([_sized(to_bytes(raw)) for raw in raws])


def _numbers(blob: bytes, start: int) -> F64 | None:
    """Return the numbers from `start` to the end; None if there are none."""
    return np.frombuffer(blob, np.float64, offset=start) if start < len(blob) else None


def _seal(identity: bytes, id: str, body: bytes) -> bytes:
    return _U32.pack(zlib.crc32(body, zlib.crc32(id.encode(), zlib.crc32(identity))))


def _unsealed(identity: bytes, id: str, blob: bytes) -> bytes:
    body = blob[: -_U32.size]
    if blob[-_U32.size :] != _seal(identity, id, body):
        raise StateCorrupt(f"The bytes stored under id {id!r} are damaged, or belong to another session.")
    return body


def _sized(data: bytes) -> bytes:
    return _U32.pack(len(data)) + data


def _unsized(blob: bytes, start: int) -> tuple[bytes, int]:
    (length,) = _U32.unpack_from(blob, start)
    end = start + _U32.size + length
    if end > len(blob):
        raise ValueError("it ends in the middle")
    return blob[start + _U32.size : end], end
