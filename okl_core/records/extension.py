"""What joins the fields later: a new category or a new field earns a spare column once it is frequent.

Until then a new category is one of the others, and a new field is not looked at. What is counted has a bound: of many the
most frequent stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from okl_core.errors import StateFormatError
from okl_core.records.fields import Fields, category_of, number_of
from okl_core.records.record import Raw, Value, as_record
from okl_core.types import F64

EARNED_AT = 20
"""Rounds in which a category or a field must be seen."""

MOST_COUNTED = 512
MOST_CHARACTERS = 256
"""Of what is counted; longer names and categories stay among the others."""

Key = tuple[str, str | None]
"""A field, and one of its categories; None: the field itself as a number."""


@final
@dataclass(slots=True)
class Extension:
    """`places`: the spare column of each key, and the number that is 0 in it. `counts`: rounds that had a key without one."""

    places: dict[Key, tuple[int, float]] = field(default_factory=dict)
    counts: dict[Key, int] = field(default_factory=dict)

    def fill(self, fields: Fields, raw: Raw, vector: F64) -> None:
        """Write the spare columns of an input into its vector."""
        if not self.places:
            return
        record, start = as_record(raw), fields.width - fields.spare
        for (name, category), (place, zero) in self.places.items():
            value = record.get(name)
            if category is not None:
                vector[start + place] = float(category_of(value) == category)
            elif (number := number_of(value)) is not None:
                vector[start + place] = number - zero

    def count(self, fields: Fields, raw: Raw) -> None:
        """Learn the keys of an input; one that is frequent now has a column from the next round on."""
        if len(self.places) >= fields.spare:
            return
        known = {one.name: one for one in fields.fields}
        for name, value in as_record(raw).items():
            own = known.get(name)
            if value is None or (own is not None and (own.kind != "category" or not own.is_open)):
                continue
            category = category_of(value)
            if own is not None and category in own.categories:
                continue
            key = (name, category if own is not None or number_of(value) is None else None)
            if len(name) + len(key[1] or "") <= MOST_CHARACTERS and key not in self.places:
                self._see(key, value, fields.spare)
        if len(self.counts) > MOST_COUNTED:
            kept = sorted(self.counts.items(), key=lambda one: (-one[1], one[0][0], one[0][1] or ""))
            self.counts = dict(kept[: MOST_COUNTED // 2])

    def _see(self, key: Key, value: Value, spare: int) -> None:
        count = self.counts.get(key, 0) + 1
        if count < EARNED_AT or len(self.places) >= spare:
            self.counts[key] = count
            return
        self.counts.pop(key, None)
        self.places[key] = len(self.places), number_of(value) or 0.0 if key[1] is None else 0.0

    @property
    def nbytes(self) -> int:
        return 200 * (len(self.counts) + len(self.places))

    def copy(self) -> Extension:
        return Extension(dict(self.places), dict(self.counts))

    def encode(self) -> str:
        """As JSON."""
        places = [[*key, *place] for key, place in self.places.items()]
        return json.dumps([places, [[*key, count] for key, count in self.counts.items()]], separators=(",", ":"))

    @classmethod
    def decode(cls, document: str) -> Extension:
        """Raises StateFormatError."""
        try:
            places, counts = json.loads(document)
            return cls(
                {(name, category): (int(place), float(zero)) for name, category, place, zero in places},
                {(name, category): int(count) for name, category, count in counts},
            )
        except (ValueError, TypeError) as error:
            raise StateFormatError(f"what joined the fields cannot be read: {error}") from error

    def told(self) -> Mapping[Key, int]:
        """The columns that were earned, counted from the first spare one."""
        return {key: place for key, (place, _) in self.places.items()}
