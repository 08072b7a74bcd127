"""A CSV file as a stream: scanned once for the kind of its truths, then read row by row."""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from okl.answers import label_key
from okl.errors import ConfigurationError
from okl_core.records.texts import number_in
from okl_core.types import MAX_CLASSES

MOST_LETTERS: Final = 8 << 20
"""The longest line, so that a file without line ends is not read into memory whole."""

PREVIOUS: Final = "previous"

OTHER_MARKS: Final = (";", "\t", "|")
"""What separates values in files that are not CSV."""

MANY_LABELS: Final = 20
"""From more labels on, most of them numbers, the user is told why they are labels."""

GAPS: Final = frozenset({"na", "n/a", "#n/a", "<na>", "#na", "nan", "-nan", "null", "none", "nil", "?"})
"""Words for a missing value, in lower case."""

Truth = float | bool | str
Cell = Truth | None

_BOOLEANS = {"true": True, "false": False}


class RecordedRow(NamedTuple):
    """A row. `number` counts from 0; `id` depends on this row and all before it, so that a file that grows keeps its ids."""

    number: int
    x: Any
    y: Truth
    id: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of a file to use: truths from the column `label`; inputs from all other columns except `drop`, or from `only`;
    `fill`, the cell above, or null for an empty cell; at most `rows` rows."""

    label: str
    drop: Sequence[str] = ()
    only: Sequence[str] = ()
    fill: Cell = None
    rows: int | None = None

    @classmethod
    def of(cls, label: str, *, drop: str | None, only: str | None, fill: str, rows: int | None = None) -> Selection:
        """Parse options: names as in a CSV file's header; a value, `previous` or `none`. Raises ConfigurationError."""
        if drop is not None and only is not None:
            raise ConfigurationError("Give --drop or --only, not both.")
        value = None if fill.lower() == "none" else _cell(fill)
        return cls(label.strip(), _names(drop), _names(only), value, rows)


@dataclass(frozen=True, slots=True)
class Odd:
    """The first truth that is not a number, in a stream that has numbers too. `are_gaps`: all such truths are words for a
    missing value, or are infinite; `are_fewer`: they are fewer than the numbers."""

    row: int
    truth: bool | str
    are_gaps: bool
    are_fewer: bool


@dataclass(frozen=True, slots=True)
class Recording:
    """A scanned stream: `count` rows, which `rows` reads again. `truths` are the distinct truths, None if they are too many
    to be labels; `low` and `high` are the range of the numbers. `reason` says why truths of mixed kind are labels."""

    title: str
    columns: tuple[str, ...]
    rows: Callable[[], Iterator[RecordedRow]]
    count: int
    truths: tuple[Truth, ...] | None
    are_numbers: bool
    low: float
    high: float
    odd: Odd | None
    reason: str = ""

    @property
    def has_labels(self) -> bool:
        """Whether the truths are labels by default: they are not numbers, or have just two values."""
        return not self.are_numbers or (self.truths is not None and len(self.truths) == 2)

    @property
    def told(self) -> str:
        """What the truths are taken for."""
        if not self.has_labels:
            return f"numbers from {self.low:g} to {self.high:g}"
        if self.truths is None:
            return "labels"
        why = f", not numbers, {self.reason}" if self.reason and len(self.truths) > MANY_LABELS else ""
        return f"{len(self.truths)} labels{why}"

    def settings(self, *, with_range: bool) -> dict[str, Any]:
        """A session's settings for the truths. Raises ConfigurationError."""
        if self.has_labels:
            if self.truths is None:
                why = f" They are not taken for numbers {self.reason}." if self.reason else ""
                raise ConfigurationError(f"The label column has over {MAX_CLASSES} values, too many for labels.{why}")
            return {"labels": sorted(self.truths, key=lambda value: (str(type(value)), value))}
        if with_range and math.isinf(self.high - self.low):
            raise ConfigurationError(
                f"The truths, from {self.low:g} to {self.high:g}, are too far apart; scale them down."
            )
        return {"y_range": [self.low, self.high]} if with_range else {}


def look_through(path: Path, selection: Selection) -> Recording:
    """Scan a file. Raises ConfigurationError for a file that cannot be a stream; so do its `rows`."""
    columns = _columns(path, selection)
    title = f"{path.name}: {selection.label}"
    found = looked_through(title, columns, lambda: _rows(path, selection, columns))
    if not found.count:
        raise ConfigurationError(f"{path} has no rows below its header.")
    if found.truths is not None and len(found.truths) < 2:
        raise ConfigurationError("The label column must have at least two different values.")
    if (odd := found.odd) is None:
        return found
    line = next(islice(_cells(path), odd.row + 1, None), (0, []))[0]
    if odd.are_gaps:
        raise ConfigurationError(
            f"{path}, line {line}: the label column has {odd.truth!r}, but numbers elsewhere. Remove the lines without a "
            "finite truth; if it is a label, write it as another word."
        )
    return replace(found, reason=f"since line {line} has {odd.truth!r:.100}") if odd.are_fewer else found


def looked_through(title: str, columns: tuple[str, ...], rows: Callable[[], Iterator[RecordedRow]]) -> Recording:
    """Scan rows from any source."""
    truths: dict[object, Truth] | None = {}
    count, low, high = 0, float("inf"), float("-inf")
    first: tuple[int, bool | str] | None = None
    others, are_gaps = 0, True
    for row in rows():
        count += 1
        if truths is not None:
            truths[label_key(row.y)] = row.y
            truths = truths if len(truths) <= MAX_CLASSES else None
        if isinstance(row.y, bool | str):
            first = (row.number, row.y) if first is None else first
            others += 1
            are_gaps = are_gaps and isinstance(row.y, str) and _is_gap(row.y)
        else:
            low, high = min(low, row.y), max(high, row.y)
    known = None if truths is None else tuple(truths.values())
    odd = Odd(*first, are_gaps, others < count - others) if first is not None and others < count else None
    return Recording(title, columns, rows, count, known, first is None, low, high, odd)


def _is_gap(word: str) -> bool:
    word = word.strip().lower()
    if word in GAPS:
        return True
    try:
        return not math.isfinite(float(word))
    except ValueError:
        return False


def _names(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    try:
        names = next(csv.reader([text], skipinitialspace=True), [])
    except csv.Error as error:
        told = f"{text!r:.100} is no list of names: quote one with a comma or a line break, as in a CSV file."
        raise ConfigurationError(told) from error
    return tuple(name.strip() for name in names) or ("",)


def _cell(text: str) -> Cell:
    """A cell as a session takes it: a number, a boolean or other text; null if it is empty."""
    text = text.strip()
    if text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    number = number_in(text)
    return text or None if number is None else number


def _columns(path: Path, selection: Selection) -> tuple[str, ...]:
    """The columns of the inputs, in the order of the file."""
    names = _header(_cells(path))
    label, known = selection.label, ", ".join(names)
    if not names:
        raise ConfigurationError(f"{path} has no rows below its header.")
    if len(names) == 1 and (mark := next((mark for mark in OTHER_MARKS if mark in known), None)) is not None:
        raise ConfigurationError(
            f"{path} separates its values by {mark!r}; write it with commas. Its header is {known}."
        )
    if len(set(names)) != len(names) or "" in names:
        raise ConfigurationError(f"{path}: every column needs a unique name; it has {known}.")
    for name in (label, *selection.drop, *selection.only):
        if name not in names:
            raise ConfigurationError(f"{path} has no column {name!r}; it has {known}.")
    if label in (*selection.drop, *selection.only):
        raise ConfigurationError(f"{label!r} is the column of the truths: it cannot be dropped or be an input.")
    wanted = set(selection.only or names) - {label, *selection.drop}
    if not wanted:
        raise ConfigurationError(f"{path} has no column besides {label!r}.")
    return tuple(name for name in names if name in wanted)


def _header(cells: Iterator[tuple[int, list[str]]]) -> list[str]:
    """The names in the first line, without surrounding blanks, like all cells; empty if there is none."""
    return [name.strip() for name in next(cells, (0, []))[1]]


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The non-empty lines, with their numbers."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(_lines(file, path))
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"{path} is not a CSV file in UTF-8: {error}.") from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from error


def _lines(file: TextIO, path: Path) -> Iterator[str]:
    while line := file.readline(MOST_LETTERS + 1):
        if len(line) > MOST_LETTERS:
            raise ConfigurationError(f"{path} is not a CSV file: a line has more than {MOST_LETTERS:,} characters.")
        yield line


def _rows(path: Path, selection: Selection, columns: Sequence[str]) -> Iterator[RecordedRow]:
    cells = _cells(path)
    names = _header(cells)
    last: dict[str, Cell] = dict.fromkeys(columns)
    digest = hashlib.blake2b(repr((selection.label, columns, selection.fill)).encode(), digest_size=6)
    for number, (line, texts) in enumerate(islice(cells, selection.rows)):
        if len(texts) != len(names):
            raise ConfigurationError(f"{path}, line {line}: the number of values differs from the header's.")
        values = dict(zip(names, map(_cell, texts), strict=True))
        y = values[selection.label]
        if y is None:
            raise ConfigurationError(f"{path}, line {line}: the label column is empty.")
        x = {name: values[name] for name in columns}
        if selection.fill is not None:
            for name in columns:
                if x[name] is None:
                    x[name] = last[name] if selection.fill == PREVIOUS else selection.fill
            last = x
        digest.update("\0".join(texts).encode("utf-8", "surrogatepass") + b"\n")
        yield RecordedRow(number, x, y, f"{digest.hexdigest()}-{number}")
