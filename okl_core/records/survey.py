"""Inference of fields from the inputs so far: their kinds, categories, and substitutes for missing values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from okl_core.records.fields import Field, FieldKind, Fields, category_of, number_of
from okl_core.records.record import Raw, Record, Value, as_record
from okl_core.records.texts import time_in
from okl_core.types import F64

HASHED = 32
"""Columns shared by all texts."""

WIDE_HASHED = 256
"""Columns shared by all names if there are more fields than MOST_FIELDS."""

MOST_FIELDS = 256
SPARE = 8
"""Columns reserved for new fields and categories."""

MOST_CATEGORIES = 20
"""Most categories of one field that get a column each."""

MOST_COLUMNS = 1024
"""Approximate limit on the columns of all inferred categories."""

RARE = 100
"""A category gets a column if it makes up at least 1 / RARE of the field's values, and at least two values."""


@final
@dataclass(frozen=True, slots=True)
class Declared:
    """A field declared by the user; if `categories` is None, they are inferred from the inputs."""

    kind: FieldKind
    categories: tuple[str, ...] | None = None


@final
@dataclass(frozen=True, slots=True)
class Survey:
    """The rules by which fields are inferred.

    `declared` fields come first, in their order, followed by any others. With `is_strict`, a record must have exactly the
    declared fields, or those of the first input if none are declared, with no value missing. With `hashed`, all names
    share this number of columns.
    """

    declared: tuple[tuple[str, Declared], ...] = ()
    is_strict: bool = False
    hashed: int | None = None

    def fields(self, raws: Sequence[Raw]) -> Fields:
        """The fields of these inputs, of which there must be at least one."""
        if self.hashed is not None:
            return Fields(hashed=self.hashed, is_wide=True)
        rows = [raw for raw in raws if not isinstance(raw, dict)]
        if not self.declared and len(rows) == len(raws) and len({len(row) for row in rows}) == 1:
            return Fields(_of_rows(np.array(rows)))
        values = self._values([as_record(raw) for raw in raws])
        if not self.declared and len(values) > MOST_FIELDS:
            return Fields(hashed=WIDE_HASHED, is_wide=True)
        declared = dict(self.declared)
        names = [*declared, *sorted(values.keys() - declared.keys(), key=_natural)[:MOST_FIELDS]]
        most = max(2, min(MOST_CATEGORIES, MOST_COLUMNS // max(1, len(names))))
        fields = tuple(self._field(name, declared.get(name), values[name], len(raws), most) for name in names)
        has_texts = any(one.kind == "text" for one in fields)
        return Fields(fields, HASHED if has_texts else 0, 0 if self.is_strict else SPARE)

    def _values(self, records: Sequence[Record]) -> dict[str, list[Value]]:
        """The values of each field in these records, missing ones left out; a declared field may have none."""
        values: dict[str, list[Value]] = {name: [] for name, _ in self.declared}
        is_closed = self.is_strict and bool(self.declared)
        for record in records:
            for name, value in record.items():
                if value is not None and (name in values or not is_closed):
                    values.setdefault(name, []).append(value)
        return values

    def _field(self, name: str, declared: Declared | None, values: list[Value], rounds: int, most: int) -> Field:
        """The field of these values, of so many rounds; `most`: categories that get a column."""
        kind = _kind(values) if declared is None else declared.kind
        if kind == "category":
            if declared is not None and declared.categories is not None:
                return Field(name, kind, declared.categories, is_open=not self.is_strict)
            return Field(name, kind, _frequent(values, most), is_open=True)
        if kind == "text":
            return Field(name, kind)
        numbers = [number for value in values if (number := _measure(kind, value)) is not None]
        middle = _mean(numbers) if kind == "boolean" else _median(numbers)
        is_missed = not self.is_strict and 0 < len(numbers) < rounds
        return Field(name, kind, has_indicator=is_missed, centre=middle)


def _of_rows(X: F64) -> tuple[Field, ...]:
    """The fields of rows of one length, shape (n, d)."""
    missing = np.isnan(X)
    fields = []
    for i in range(X.shape[1]):
        seen = X[~missing[:, i], i]
        is_missed = 0 < len(seen) < len(X)
        fields.append(Field(str(i), has_indicator=is_missed, centre=_median(seen.tolist())))
    return tuple(fields)


def _natural(name: str) -> tuple[bool, int, str]:
    """Sort key: positions in numerical order, then names in alphabetical order."""
    is_position = name.isascii() and name.isdigit() and len(name) < 10
    return not is_position, int(name) if is_position else 0, name


def _kind(values: Sequence[Value]) -> FieldKind:
    """The kind of most values; numbers take precedence."""
    strings = [value for value in values if isinstance(value, str)]
    booleans = sum(isinstance(value, bool) for value in values)
    spelt = sum(number_of(value) is not None for value in strings)
    if 2 * (len(values) - len(strings) - booleans + spelt) >= len(values):
        return "number"
    if 2 * booleans >= len(values):
        return "boolean"
    if 2 * sum(time_in(value) is not None for value in strings) >= len(values):
        return "time"
    counts = Counter(strings)
    is_free = len(counts) > MOST_CATEGORIES and 2 * len(counts) > len(strings)
    return "text" if is_free else "category"


def _frequent(values: Sequence[Value], most: int) -> tuple[str, ...]:
    """The categories that get a column, the most frequent first."""
    counts = Counter(category for value in values if (category := category_of(value)) is not None)
    least = max(2.0, len(values) / RARE)
    kept = sorted((-count, category) for category, count in counts.items() if count >= least)
    return tuple(category for _, category in kept[:most])


def _measure(kind: FieldKind, value: Value) -> float | None:
    if kind == "time":
        time = time_in(value) if isinstance(value, str) else None
        return None if time is None else time.timestamp() / 86400.0
    return number_of(value)


def _mean(numbers: Sequence[float]) -> float:
    """The mean, or the median if their sum overflows; 0 if there are none."""
    mean = sum(numbers) / max(1, len(numbers))
    return mean if math.isfinite(mean) else _median(numbers)


def _median(numbers: Sequence[float]) -> float:
    """The median, or the lower of two middle values, so that it is one of the numbers; 0 if there are none."""
    return sorted(numbers)[(len(numbers) - 1) // 2] if numbers else 0.0
