"""Conversion to JSON: NumPy values, rows and columns of data frames (pandas, polars, anything narwhals reads), dates."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, time, timedelta
from typing import Any

from okl.errors import NotFinite, WrongType


def row(x: Any) -> Any:
    """One input as a JSON object or list; a data frame must have exactly one row."""
    found = frame_of(x)
    if found is None:
        return as_json(x)
    if hasattr(found, "columns"):
        records = rows(x)
        if len(records) != 1:
            raise WrongType(f"One input is a row of a frame; this frame has {len(records)}.", errors=[])
        return records[0]
    names = _names(found)
    return as_json(found.to_list() if names is None else dict(zip(names, found.to_list(), strict=True)))


def rows(X: Any) -> list[Any]:
    """Many inputs as JSON; the rows of a data frame become objects by column name, or lists if the columns are unnamed."""
    found = frame_of(X)
    if found is None:
        return as_json(X) if _is_of_numpy(X) and X.ndim else [row(x) for x in as_list(X)]
    if not hasattr(found, "columns"):
        return as_json(found.to_list())
    names = found.columns
    records: Iterable[Any] = found.iter_rows()
    if all(isinstance(name, str) for name in names):
        records = (dict(zip(names, record, strict=True)) for record in records)
    return [as_json(record) for record in records]


def column(y: Any) -> list[Any]:
    """Many truths as JSON. Raises WrongType for a data frame that does not have exactly one column."""
    found = frame_of(y)
    if found is None:
        return as_json(as_list(y))
    if hasattr(found, "columns"):
        if len(found.columns) != 1:
            raise WrongType(f"Truths are one column of a frame; this frame has {len(found.columns)}.", errors=[])
        found = found[found.columns[0]]
    return as_json(found.to_list())


def as_list(values: Any) -> list[Any]:
    """The values as a list. Raises WrongType for a single value."""
    is_one = isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable)
    if is_one or getattr(values, "ndim", 1) == 0:
        raise WrongType(f"Many rounds are a list, not {type(values).__name__}.", errors=[])
    of_arrow = getattr(values, "to_pylist", None)
    return list(values) if of_arrow is None else of_arrow()


def as_json(value: Any) -> Any:
    """The value as JSON; NaN and NaT become None. Raises NotFinite for infinity, WrongType for a type without JSON form."""
    kind = type(value)
    if kind is float:
        if math.isinf(value):
            raise NotFinite(f"JSON has no number {value}.", errors=[])
        return None if value != value else value
    if value is None or kind in (bool, int, str):
        return value
    if isinstance(value, Mapping):
        return {str(key): as_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(entry) for entry in value]
    if _is_of_numpy(value):
        return _from_numpy(value)
    if kind.__name__ == "NAType":  # pandas.NA, which cannot be compared
        return None
    if isinstance(value, date | time):
        return None if value != value else value.isoformat()  # pandas.NaT is a date
    if isinstance(value, timedelta):
        return None if value != value else value.total_seconds()
    if isinstance(value, str):
        return str.__str__(value)  # the content of a string enum, not its name
    if hasattr(value, "__float__"):
        with suppress(ValueError, OverflowError):  # a signaling NaN, a fraction beyond floats
            return as_json(float(value))
    raise WrongType(f"JSON has nothing for a value of type {kind.__name__}.", errors=[])


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _is_of_numpy(value: Any) -> bool:
    """Whether the value is a NumPy array or scalar, or an instance of a subclass."""
    if _library(value) == "numpy":
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def _from_numpy(value: Any) -> Any:
    if value.ndim:
        # `tolist` forgets the unit of times and the names of fields.
        return [as_json(entry) for entry in (value if value.dtype.kind in "MV" else value.tolist())]
    if value.dtype.names is not None:
        return {name: as_json(value[name]) for name in value.dtype.names}
    if value.dtype.kind in "mM" and value != value:
        return None
    if value.dtype.kind == "M":
        return str(value)
    if value.dtype.kind == "m":
        return float(value / sys.modules["numpy"].timedelta64(1, "s"))
    if value.dtype.kind == "f" and value.dtype.itemsize > 8:
        return as_json(float(value))  # `tolist` leaves a long double as it is
    return as_json(value.tolist())  # a masked value becomes None


def frame_of(value: Any) -> Any:
    """The narwhals view of a data frame or series of any library, or of batches of Arrow; None for anything else.

    Raises WrongType for a lazy frame, and if two columns share a name.
    """
    if _library(value) in ("builtins", "numpy"):
        return None
    try:
        import narwhals  # only callers with a data frame pay for the import
    except ImportError:
        # Recognize pandas, polars and Arrow; a time or a decimal of another library passes through.
        if any(hasattr(value, name) for name in ("iloc", "__dataframe__", "__arrow_c_stream__")):
            raise ImportError("frames are read with narwhals: pip install 'okl[frames]'") from None
        return None

    try:
        found = narwhals.from_native(value, allow_series=True, pass_through=True)
    except narwhals.exceptions.DuplicateError:
        raise _duplicates(list(getattr(value, "column_names", value.columns))) from None
    if isinstance(found, narwhals.LazyFrame):
        remedy = "pass what its collect() returns" if hasattr(value, "collect") else "materialize it first"
        raise WrongType(f"A {type(value).__name__} has no rows yet; {remedy}.", errors=[])
    if isinstance(found, narwhals.DataFrame | narwhals.Series):
        return found
    if not hasattr(value, "__arrow_c_stream__"):
        return None
    import pyarrow  # narwhals knows its tables, but no batches and no reader of them

    return frame_of(pyarrow.table(value))


def _names(series: Any) -> list[str] | None:
    """The column names of a pandas series that is a row of a frame; None for other series."""
    import narwhals

    index = narwhals.maybe_get_index(series)
    names = [] if index is None else list(index)
    if not names or not all(isinstance(name, str) for name in names):
        return None
    check_distinct(names)
    return names


def check_distinct(names: Sequence[Any]) -> None:
    """Raises WrongType if two columns share a name."""
    if len(set(names)) < len(names):
        raise _duplicates(names)


def _duplicates(names: Sequence[Any]) -> WrongType:
    name = next(name for name in names if names.count(name) > 1)
    return WrongType(f"The columns of a frame need distinct names; {name!r} names {names.count(name)}.", errors=[])
