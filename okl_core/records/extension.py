"""Fields and categories that appear later: each gets a spare column once it is frequent.

Until then a new category counts as "other", and a new field is ignored. The number of counted keys is bounded: if there
are too many, only the most frequent are kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

from pydantic import FiniteFloat, NonNegativeInt, TypeAdapter

from okl_core.errors import StateFormatError
from okl_core.records.fields import Fields, category_of, number_of
from okl_core.records.record import Raw, Value, as_record
from okl_core.types import F64

EARNED_AT = 20
"""Rounds in which a category or field must be seen before it gets a column."""

MOST_COUNTED = 512
MOST_CHARACTERS = 256
"""Longest name and category, together, that are counted; longer ones never get a column."""

Key = tuple[str, str | None]
"""A field and one of its categories, or None for the field itself as a number."""

_Place = tuple[str, str | None, NonNegativeInt, FiniteFloat]
_Count = tuple[str, str | None, NonNegativeInt]
_ENCODED: Final = TypeAdapter[tuple[list[_Place], list[_Count]]](tuple[list[_Place], list[_Count]])


@final
@dataclass(slots=True)
class Extension:
    """Spare columns in use, and counts of the keys that have none yet.

    `places` maps each key to its spare column and the number that is encoded as 0 in it. `counts` holds the number of
    rounds in which each key without a column was seen.
    """

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
        """Count the new keys of an input; a key that has become frequent has a column from the next round on."""
        if len(self.places) >= fields.spare:
            return
        known = {one.name: one for one in fields.fields}
        for name, value in as_record(raw).items():
            entry = known.get(name)
            if value is None or (entry is not None and (entry.kind != "category" or not entry.is_open)):
                continue
            category = category_of(value)
            if entry is not None and category in entry.categories:
                continue
            key = (name, category if entry is not None or number_of(value) is None else None)
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

    def ignored(self, fields: Fields) -> list[str]:
        """The names of inputs so far that are no fields and have no column, the most frequent first."""
        known = fields.names
        found = sorted(self.counts.items(), key=lambda one: -one[1])
        return list(dict.fromkeys(name for (name, _), _ in found if name not in known))

    @property
    def nbytes(self) -> int:
        return 200 * (len(self.counts) + len(self.places))

    def copy(self) -> Extension:
        return Extension(dict(self.places), dict(self.counts))

    def encode(self) -> str:
        """The extension as JSON."""
        places = [[*key, *place] for key, place in self.places.items()]
        return json.dumps([places, [[*key, count] for key, count in self.counts.items()]], separators=(",", ":"))

    @classmethod
    def decode(cls, document: str) -> Extension:
        """The extension from its JSON. Raises StateFormatError."""
        try:
            places, counts = _ENCODED.validate_json(document)
        except ValueError as error:
            raise StateFormatError(f"the extension of the fields cannot be read: {error}") from error
        return cls(
            {(name, category): (place, zero) for name, category, place, zero in places},
            {(name, category): count for name, category, count in counts},
        )

    def columns(self) -> Mapping[Key, int]:
        """The spare column of each key, counted from the first spare one."""
        return {key: place for key, (place, _) in self.places.items()}
