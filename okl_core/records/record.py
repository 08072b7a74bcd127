"""A raw input: a row of numbers, or a record of named values. Nested objects are flattened by path.

Both forms are compact and have a canonical byte form: equal inputs give equal bytes, regardless of the order of names.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from pydantic_core import from_json, to_json
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import InputError, StateFormatError
from okl_core.types import F64

Value = float | bool | str | None
Record = dict[str, Value]
Raw = F64 | Record
"""A row of numbers, shape (d,), with NaN for missing ones; or values by name."""

Raws = F64 | Sequence[Raw]
"""The inputs of n rounds: a sequence, or a matrix, shape (n, d), if all are rows of d numbers."""

MAX_DEPTH = 16
MAX_NAME = 1024
"""Most characters in a path."""

READ_AT_ONCE = 10_000
"""Numbers converted to an array before other threads may run: about a millisecond."""

_HALF_PAIR = re.compile("[\ud800-\udfff]")
_ROW, _RECORD = b"\x00", b"\x01"
NUMBERS = {int, float, type(None)}
"""The types of the values of a list that is read as a row."""


class RecordError(InputError):
    """A value that is not allowed in a record, at `path`."""

    def __init__(self, path: tuple[str | int, ...], message: str) -> None:
        super().__init__(message)
        self.path = path


class NotANumberError(RecordError):
    """NaN, or a number beyond double precision."""


def flatten(x: Sequence[Any] | Mapping[str, Any] | F64) -> Raw:
    """The input as a row if it is a list of numbers and nulls, else as a record; the path of a value is its name.

    An array, shape (d,), is already a row: its numbers are finite, or NaN if missing.

    The names of a record are sorted, so that sums and counts over them do not depend on their original order.
    `{"indices": [...], "values": [...]}` becomes a record of the values by index. Raises RecordError.

    Examples
    --------
    >>> flatten({"user": {"age": 31, "tags": ["a", None]}, "paid": True})
    {'paid': True, 'user.age': 31.0, 'user.tags.0': 'a', 'user.tags.1': None}
    >>> flatten([1, None, 2.5])
    array([1. , nan, 2.5])
    """
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, Mapping):
        if x.keys() == {"indices", "values"} and isinstance(x["indices"], list):
            return _in_order(_sparse(x["indices"], x["values"]))
        record: Record = {}
        _flatten(x.items(), "", (), record)
        return _in_order(record)
    if set(map(type, x)) <= NUMBERS:
        try:
            row = np.array(x, dtype=np.float64)
        except OverflowError:
            pass  # `_flatten` below raises the error with its path.
        else:
            if not is_complete(row):
                is_fine = np.isfinite(row)
                is_fine |= np.array([value is None for value in x])
                if not is_fine.all():
                    raise NotANumberError((int(is_fine.argmin()),), "must be a finite number")
            return row
    record = {}
    _flatten(enumerate(x), "", (), record)
    return _in_order(record)


def is_complete(row: F64) -> bool:
    """Whether all numbers of a row, shape (d,), are finite, and so none is missing."""
    # Three times as fast as a mask; squares of large numbers overflow.
    return (len(row) > 0 and math.isfinite(ddot(row, row))) or bool(np.isfinite(row).all())


def matrix_of(xs: Sequence[Any] | F64) -> F64 | None:
    """Inputs as a matrix of finite numbers, shape (n, d), d at least 1; None if any input is something else."""
    if isinstance(xs, np.ndarray):
        return xs if xs.ndim == 2 and xs.shape[1] and np.isfinite(xs).all() else None
    if not xs or set(map(type, xs)) != {list} or not (d := len(xs[0])):
        return None
    # Convert in slices, so that other threads can run in between.
    step = max(1, READ_AT_ONCE // d)
    parts: list[F64] = []
    for start in range(0, len(xs), step):
        some = xs[start : start + step]
        if not set(map(type, chain.from_iterable(some))) <= {int, float}:
            return None
        part = packed(some)
        if part is None or part.shape[1] != d or not np.isfinite(part).all():
            return None
        parts.append(part)
    return np.concatenate(parts)


def packed(rows: Sequence[Sequence[float]]) -> F64 | None:
    """Rows of equal length as a read-only array, shape (n, d); None for anything else.

    Takes a third of the time of `np.array`.
    """
    d = len(rows[0])
    pack = struct.Struct(f"{d}d").pack
    try:
        return np.frombuffer(b"".join([pack(*row) for row in rows])).reshape(-1, d)
    except (struct.error, OverflowError):
        return None


def to_list(values: Sequence[Any] | F64) -> Sequence[Any]:
    """The elements as Python objects; those of a matrix are lists."""
    return values.tolist() if isinstance(values, np.ndarray) else values


def weights_of(weights: Sequence[float] | F64 | None) -> F64 | None:
    """The weights of n rounds, shape (n,); None if all are 1."""
    found = None if weights is None else np.asarray(weights, dtype=np.float64)
    return None if found is None or (found == 1.0).all() else found


def _flatten(items: Any, prefix: str, path: tuple[str | int, ...], record: Record) -> None:
    if len(path) >= MAX_DEPTH:
        raise RecordError(path, f"is nested deeper than {MAX_DEPTH} levels")
    for key, value in items:
        place = (*path, key)
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            _flatten(value.items(), name + ".", place, record)
        elif isinstance(value, list | tuple):
            _flatten(enumerate(value), name + ".", place, record)
        elif not _is_text(name):
            raise RecordError(place[:-1], "has a name with an unpaired surrogate")
        elif name in record:
            raise RecordError(place, f"is the second value with the name {name!r}")
        elif len(name) > MAX_NAME:
            raise RecordError(place, f"has a name of more than {MAX_NAME} characters")
        else:
            record[name] = _value(value, place)


def _value(value: Any, path: tuple[str | int, ...]) -> Value:
    if isinstance(value, str) and not _is_text(value):
        raise RecordError(path, "contains an unpaired surrogate")
    if value is None or isinstance(value, bool | str):
        return value
    if not isinstance(value, int | float):
        raise RecordError(path, "must be a number, a string, a boolean, null, or an object or list of these")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise NotANumberError(path, "must be a finite number")
    return number


def _is_text(value: str) -> bool:
    return value.isascii() or not _HALF_PAIR.search(value)


def _sparse(indices: list[Any], values: Any) -> Record:
    if not isinstance(values, list) or len(values) != len(indices):
        raise RecordError(("values",), "must be a list of as many numbers as `indices` has")
    record: Record = {}
    for i, (index, value) in enumerate(zip(indices, values, strict=True)):
        is_whole = isinstance(index, int | float) and not isinstance(index, bool) and index == index // 1
        if not is_whole or not 0 <= index < 2**53:
            raise RecordError(("indices", i), "must be a whole number that is not negative")
        if str(int(index)) in record:
            raise RecordError(("indices", i), "appears twice")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise RecordError(("values", i), "must be a number")
        record[str(int(index))] = _value(value, ("values", i))
    return record


def _in_order(record: Record) -> Record:
    return dict(sorted(record.items()))


def as_record(raw: Raw) -> Record:
    """The input as a record; a row becomes a record of its numbers by position."""
    if isinstance(raw, dict):
        return raw
    return {str(i): None if math.isnan(value) else value for i, value in enumerate(raw.tolist())}


def to_bytes(raw: Raw) -> bytes:
    """The canonical bytes of an input, equal for equal inputs."""
    if isinstance(raw, dict):
        return _RECORD + to_json(_in_order(raw))
    return _ROW + raw.tobytes()


def from_bytes(data: bytes) -> Raw:
    """The inverse of `to_bytes`. Raises StateFormatError."""
    try:
        if data[:1] == _ROW:
            return np.frombuffer(data, np.float64, offset=1)
        if data[:1] == _RECORD and isinstance(record := from_json(data[1:]), dict):
            return {name: float(value) if type(value) is int else value for name, value in record.items()}
    except ValueError as error:
        raise StateFormatError(f"an input cannot be read: {error}") from error
    raise StateFormatError("an input is neither a row nor a record")


def size_of(raw: Raw) -> int:
    """Approximate memory taken by an input, in bytes."""
    if isinstance(raw, dict):
        return sum(80 + len(name) + (len(value) if isinstance(value, str) else 24) for name, value in raw.items())
    return raw.nbytes
