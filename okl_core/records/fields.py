r"""What becomes of each field of a record: the columns of the vector that a learner is given.

| kind     | columns                                                                                              |
|----------|------------------------------------------------------------------------------------------------------|
| number   | the number; the field's median where it is missing                                                   |
| boolean  | 0 or 1; the share of the ones where it is missing                                                    |
| category | 1 for the category that it is, else 0; of an open one the last column stands for all other values    |
| time     | days since 1970, and hour, weekday and day of the year as points of a circle                         |
| text     | its words in columns that all texts share, by hashing                                                |

A number, boolean or time that was missing before has one more column, which is 1 where it is missing.

References: [weinberger2009] for hashing.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import Literal, final, get_args

import numpy as np

from okl_core.records.record import Raw, Record, Value, as_record
from okl_core.records.texts import TIME_COLUMNS, cycles, number_in, place_of, time_in, words
from okl_core.types import F64

FieldKind = Literal["number", "boolean", "category", "time", "text"]
FIELD_KINDS: tuple[str, ...] = get_args(FieldKind)


@final
@dataclass(frozen=True, slots=True)
class Field:
    """One field. `centre` is what a missing value is taken for; the days since 1970 of a time."""

    name: str
    kind: FieldKind = "number"
    categories: tuple[str, ...] = ()
    is_open: bool = False
    has_indicator: bool = False
    centre: float = 0.0

    @property
    def width(self) -> int:
        """Columns of its own."""
        if self.kind == "text":
            return 0
        if self.kind == "category":
            return len(self.categories) + self.is_open
        return (TIME_COLUMNS if self.kind == "time" else 1) + self.has_indicator

    def columns(self, value: Value) -> list[float]:
        """Those of its own, for the value of a record; None is missing."""
        if self.kind == "category":
            chosen = category_of(value)
            own = [1.0 if chosen == category else 0.0 for category in self.categories]
            return [*own, 0.0 if 1.0 in own else 1.0] if self.is_open else own
        if self.kind == "time":
            time = time_in(value) if isinstance(value, str) else None
            found = [self.centre, *[0.0] * (TIME_COLUMNS - 1)] if time is None else cycles(time)
            return [*found, float(time is None)] if self.has_indicator else found
        number = number_of(value)
        found = [self.centre if number is None else number]
        return [*found, float(number is None)] if self.has_indicator else found


def number_of(value: Value) -> float | None:
    """A number, a boolean as 0 or 1, or the number that a string spells."""
    return number_in(value) if isinstance(value, str) else None if value is None else float(value)


def category_of(value: Value) -> str | None:
    """The value as a category: 1 and "1" are one, true and "true" too."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.15g}"
    return value if isinstance(value, str) else None


@final
@dataclass(frozen=True, slots=True)
class Fields:
    """The fields in order, then `hashed` columns that all texts share, then `spare` ones for what comes later.

    `is_wide`: there are no fields, and every name is hashed, a string together with its value; what is missing is 0. Without
    that the names of a row of d numbers are "0" to "d-1".
    """

    fields: tuple[Field, ...] = ()
    hashed: int = 0
    spare: int = 0
    is_wide: bool = False
    _row: F64 | None = field(init=False, compare=False, repr=False)
    """The centres, where a row of numbers is the vector but for what is missing."""
    own: int = field(init=False, compare=False, repr=False)
    """Columns of the fields."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "own", sum(one.width for one in self.fields))
        is_row = all(one.kind == "number" and one.name == str(i) for i, one in enumerate(self.fields))
        is_row &= not (self.hashed or self.spare or self.is_wide)
        is_row &= not any(one.has_indicator for one in self.fields)
        object.__setattr__(self, "_row", np.array([one.centre for one in self.fields]) if is_row else None)

    @property
    def is_row(self) -> bool:
        """Is a row of numbers the vector, but for what is missing?"""
        return self._row is not None

    @property
    def width(self) -> int:
        """Columns in all."""
        return self.own + self.hashed + self.spare

    @property
    def names(self) -> set[str]:
        return {one.name for one in self.fields}

    def encode(self, raw: Raw) -> F64:
        """The vector, shape (width,), before any scaling; 0 in the spare columns."""
        if self._row is not None and not isinstance(raw, dict):
            if len(raw) != len(self._row):
                raw = np.concatenate((raw, np.full(max(0, len(self._row) - len(raw)), np.nan)))[: len(self._row)]
            return self.filled(raw)
        record = as_record(raw)
        vector = np.zeros(self.width)
        if self.is_wide:
            self._hash_all(record, vector)
            return vector
        found: list[float] = []
        for one in self.fields:
            value = record.get(one.name)
            if type(value) is float and one.kind == "number":
                found.append(value)
                if one.has_indicator:
                    found.append(0.0)
            elif one.kind == "text":
                if isinstance(value, str):
                    self._hash_words(one.name, value, vector)
            else:
                found += one.columns(value)
        vector[: len(found)] = found
        return vector

    def filled(self, rows: F64) -> F64:
        """One row, shape (d,), or n of them, shape (n, d), of fields with `is_row`: the centres where a number is missing."""
        assert self._row is not None
        return np.where(np.isnan(rows), self._row, rows)

    def _hash_words(self, name: str, text: str, vector: F64) -> None:
        """Of length 1 in the shared columns, unless words meet in one."""
        found = list(words(text)) or [text]
        share = 1.0 / math.sqrt(len(found))
        for word in found:
            place, sign = place_of(f"{name}={word}", self.hashed)
            vector[self.own + place] += sign * share

    def _hash_all(self, record: Record, vector: F64) -> None:
        for name, value in record.items():
            if value is None:
                continue
            is_text = isinstance(value, str) and number_in(value) is None
            place, sign = place_of(f"{name}={value}" if is_text else name, self.hashed)
            # As Python's numbers, whose sum overflows to inf without a warning; it stays finite.
            total = vector.item(place) + sign * (1.0 if is_text else number_of(value) or 0.0)
            vector[place] = min(max(total, -sys.float_info.max), sys.float_info.max)
