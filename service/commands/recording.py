"""A CSV file as a stream: looked through once for what its truths are, then read row by row."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from okl.errors import ConfigurationError
from okl_core.records.texts import number_in
from okl_core.types import MAX_CLASSES

MOST_LETTERS: Final = 8 << 20
"""Of one line: what has no end of line is not read into memory whole."""

PREVIOUS: Final = "previous"

Cell = float | bool | str | None

_BOOLEANS = {"true": True, "false": False}


class RecordedRow(NamedTuple):
    """`number` counts from 0; `id` follows from this row and all before it, so that a file that has grown keeps its ids."""

    number: int
    x: Any
    y: float | bool | str
    id: str


@dataclass(frozen=True, slots=True)
class Selection:
    """What is taken of a file: its truths from the column `label`, all other columns but those of `drop`, or only `only`; in
    place of an empty cell `fill`, the cell above it, or null; `rows` at most."""

    label: str
    drop: Sequence[str] = ()
    only: Sequence[str] = ()
    fill: Cell = None
    rows: int | None = None

    @classmethod
    def of(cls, label: str, *, drop: str | None, only: str | None, fill: str, rows: int | None = None) -> Selection:
        """From options: names with commas between them; a value, `previous` or `none`. Raises ConfigurationError."""
        if drop is not None and only is not None:
            raise ConfigurationError("Give --drop or --only, not both.")
        value = None if fill.lower() == "none" else _cell(fill)
        return cls(label, _names(drop), _names(only), value, rows)


@dataclass(frozen=True, slots=True)
class Recording:
    """A stream that was looked through: `count` rows, which `rows` reads anew. `truths` are the different values of the
    truths, None where they are too many to be labels; `low` and `high` those of numbers."""

    title: str
    columns: tuple[str, ...]
    rows: Callable[[], Iterator[RecordedRow]]
    count: int
    truths: frozenset[Cell] | None
    are_numbers: bool
    low: float
    high: float

    @property
    def has_labels(self) -> bool:
        """Are the truths labels, as long as nobody says what they are? What has two values is."""
        return not self.are_numbers or (self.truths is not None and len(self.truths) == 2)

    def settings(self, *, are_labels: bool, with_range: bool) -> dict[str, Any]:
        """What a session is told of the truths. Raises ConfigurationError."""
        if are_labels:
            if self.truths is None:
                raise ConfigurationError(f"The label column has over {MAX_CLASSES} values; labels are fewer.")
            return {"labels": sorted(self.truths, key=lambda value: (str(type(value)), value))}
        return {"y_range": [self.low, self.high]} if with_range else {}


def look_through(path: Path, selection: Selection) -> Recording:
    """Raises ConfigurationError for a file that cannot be a stream; so do its `rows`."""
    columns = _columns(path, selection)
    title = f"{path.name}: {selection.label}"
    found = looked_through(title, columns, lambda: _rows(path, selection, columns))
    if not found.count:
        raise ConfigurationError(f"{path} has no rows below its header.")
    if found.truths is not None and len(found.truths) < 2:
        raise ConfigurationError("The label column is to have two different values at least.")
    return found


def looked_through(title: str, columns: tuple[str, ...], rows: Callable[[], Iterator[RecordedRow]]) -> Recording:
    """What there is of rows from anywhere."""
    truths: set[Cell] | None = set()
    count, are_numbers, low, high = 0, True, float("inf"), float("-inf")
    for row in rows():
        count += 1
        if truths is not None:
            truths.add(row.y)
            truths = truths if len(truths) <= MAX_CLASSES else None
        if isinstance(row.y, bool | str):
            are_numbers = False
        else:
            low, high = min(low, row.y), max(high, row.y)
    known = None if truths is None else frozenset(truths)
    return Recording(title, columns, rows, count, known, are_numbers, low, high)


def _names(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(name.strip() for name in text.split(","))


def _cell(text: str) -> Cell:
    """Cells as a session takes them: numbers, booleans and other text; null for an empty one."""
    text = text.strip()
    if text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    number = number_in(text)
    return text or None if number is None else number


def _columns(path: Path, selection: Selection) -> tuple[str, ...]:
    """Those of the inputs, in the order of the file."""
    names = next(_cells(path), (0, []))[1]
    label, known = selection.label, ", ".join(names)
    if not names:
        raise ConfigurationError(f"{path} has no rows below its header.")
    if len(set(names)) != len(names) or "" in names:
        raise ConfigurationError(f"{path}: every column needs a name of its own; it has {known}.")
    for name in (label, *selection.drop, *selection.only):
        if name not in names:
            raise ConfigurationError(f"{path} has no column {name!r}; it has {known}.")
    if label in (*selection.drop, *selection.only):
        raise ConfigurationError(f"{label!r} is the column of the truths: it is neither dropped nor an input.")
    wanted = set(selection.only or names) - {label, *selection.drop}
    if not wanted:
        raise ConfigurationError(f"{path} has no column beside {label!r}.")
    return tuple(name for name in names if name in wanted)


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not empty, with their numbers."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(_lines(file, path))
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"{path} is no CSV file in UTF-8: {error}.") from error
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from error


def _lines(file: TextIO, path: Path) -> Iterator[str]:
    while line := file.readline(MOST_LETTERS + 1):
        if len(line) > MOST_LETTERS:
            raise ConfigurationError(f"{path} is no CSV file: a line has more than {MOST_LETTERS:,} letters.")
        yield line


def _rows(path: Path, selection: Selection, columns: Sequence[str]) -> Iterator[RecordedRow]:
    cells = _cells(path)
    names = next(cells, (0, []))[1]
    last: dict[str, Cell] = dict.fromkeys(columns)
    digest = hashlib.blake2b(repr((selection.label, columns, selection.fill)).encode(), digest_size=6)
    for number, (line, texts) in enumerate(islice(cells, selection.rows)):
        if len(texts) != len(names):
            raise ConfigurationError(f"{path}, line {line}: another number of values than the header has.")
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
