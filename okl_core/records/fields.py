r"""Encoding of a record's fields as columns of the learner's input vector.

| kind     | columns                                                                                              |
|----------|------------------------------------------------------------------------------------------------------|
| number   | the number; the field's median if it is missing                                                      |
| boolean  | 0 or 1; the share of ones if it is missing                                                           |
| category | one-hot; an open field has a last column for all other values                                        |
| time     | days since 1970, then hour, weekday and day of the year as points on a circle                        |
| text     | its words, hashed into columns that all texts share                                                  |

A number, boolean or time field with missing values so far has one more column, which is 1 if the value is missing.

References: [weinberger2009] for hashing.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import Literal, final, get_args

import numpy as np

from okl_core.records.record import Raw, Record, Value, as_record, is_complete
from okl_core.records.texts import TIME_COLUMNS, cycles, number_in, place_of, time_in, words
from okl_core.types import F64

FieldKind = Literal["number", "boolean", "category", "time", "text"]
FIELD_KINDS: tuple[str, ...] = get_args(FieldKind)


@final
@dataclass(frozen=True, slots=True)
class Field:
    """One field. `centre` replaces a missing value; for a time, it is in days since 1970."""

    name: str
    kind: FieldKind = "number"
    categories: tuple[str, ...] = ()
    is_open: bool = False
    has_indicator: bool = False
    centre: float = 0.0

    @property
    def width(self) -> int:
        """Number of columns used by this field alone."""
        if self.kind == "text":
            return 0
        if self.kind == "category":
            return len(self.categories) + self.is_open
        return (TIME_COLUMNS if self.kind == "time" else 1) + self.has_indicator

    def columns(self, value: Value) -> list[float]:
        """The columns of this field for a record's value; None is missing."""
        if self.kind == "category":
            chosen = category_of(value)
            one_hot = [1.0 if chosen == category else 0.0 for category in self.categories]
            return [*one_hot, 0.0 if 1.0 in one_hot else 1.0] if self.is_open else one_hot
        if self.kind == "time":
            time = time_in(value) if isinstance(value, str) else None
            numbers = [self.centre, *[0.0] * (TIME_COLUMNS - 1)] if time is None else cycles(time)
            return [*numbers, float(time is None)] if self.has_indicator else numbers
        number = number_of(value)
        numbers = [self.centre if number is None else number]
        return [*numbers, float(number is None)] if self.has_indicator else numbers


def number_of(value: Value) -> float | None:
    """The value as a number: a boolean as 0 or 1, a string if it spells a number, else None."""
    return number_in(value) if isinstance(value, str) else None if value is None else float(value)


def category_of(value: Value) -> str | None:
    """The value as a category: 1 equals "1", and true equals "true"."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.15g}"
    return value if isinstance(value, str) else None


@final
@dataclass(frozen=True, slots=True)
class Fields:
    """The fields in order, then `hashed` columns shared by all texts, then `spare` columns for later keys.

    With `is_wide` there are no fields, and every name is hashed, together with the value if that is a string; missing
    values are 0. Otherwise the names of a row of d numbers are "0" to "d-1".
    """

    fields: tuple[Field, ...] = ()
    hashed: int = 0
    spare: int = 0
    is_wide: bool = False
    _row: F64 | None = field(init=False, compare=False, repr=False)
    """The centres if `is_row`, else None."""
    own: int = field(init=False, compare=False, repr=False)
    """Number of columns of the fields."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "own", sum(one.width for one in self.fields))
        is_row = all(one.kind == "number" and one.name == str(i) for i, one in enumerate(self.fields))
        is_row &= not (self.hashed or self.spare or self.is_wide)
        is_row &= not any(one.has_indicator for one in self.fields)
        object.__setattr__(self, "_row", np.array([one.centre for one in self.fields]) if is_row else None)

    @property
    def is_row(self) -> bool:
        """Whether a row of numbers is already the vector, except for missing values."""
        return self._row is not None

    @property
    def width(self) -> int:
        """Total number of columns."""
        return self.own + self.hashed + self.spare

    @property
    def names(self) -> set[str]:
        return {one.name for one in self.fields}

    def encode(self, raw: Raw) -> F64:
        """The unscaled vector, shape (width,); the spare columns are 0."""
        if self._row is not None and not isinstance(raw, dict):
            if len(raw) != len(self._row):
                raw = np.concatenate((raw, np.full(max(0, len(self._row) - len(raw)), np.nan)))[: len(self._row)]
            return raw if is_complete(raw) else self.filled(raw)
        record = as_record(raw)
        vector = np.zeros(self.width)
        if self.is_wide:
            self._hash_all(record, vector)
            return vector
        numbers: list[float] = []
        for one in self.fields:
            value = record.get(one.name)
            if type(value) is float and one.kind == "number":
                numbers.append(value)
                if one.has_indicator:
                    numbers.append(0.0)
            elif one.kind == "text":
                if isinstance(value, str):
                    self._hash_words(one.name, value, vector)
            else:
                numbers += one.columns(value)
        vector[: len(numbers)] = numbers
        return vector

    def filled(self, rows: F64) -> F64:
        """Rows, shape (d,) or (n, d), with missing numbers replaced by the centres. Only for fields with `is_row`."""
        assert self._row is not None
        return np.where(np.isnan(rows), self._row, rows)

    def _hash_words(self, name: str, text: str, vector: F64) -> None:
        """Add the words to the shared columns, scaled to Euclidean length 1 unless hashes collide."""
        tokens = list(words(text)) or [text]
        share = 1.0 / math.sqrt(len(tokens))
        for word in tokens:
            place, sign = place_of(f"{name}={word}", self.hashed)
            vector[self.own + place] += sign * share

    def _hash_all(self, record: Record, vector: F64) -> None:
        for name, value in record.items():
            if value is None:
                continue
            is_text = isinstance(value, str) and number_in(value) is None
            place, sign = place_of(f"{name}={value}" if is_text else name, self.hashed)
            # Python floats overflow to inf without a warning; the sum is then cut to a finite one.
            total = vector.item(place) + sign * (1.0 if is_text else number_of(value) or 0.0)
            vector[place] = min(max(total, -sys.float_info.max), sys.float_info.max)
