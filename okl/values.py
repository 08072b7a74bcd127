"""Conversion to JSON: NumPy values, rows and columns of data frames (pandas, polars, anything narwhals reads), dates."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, time, timedelta
from typing import Any

from okl.errors import InvalidInput, NotFinite, WrongType

Json = dict[str, Any]
"""A JSON object."""


def row(x: Any, at: str = "/x") -> Any:
    """One input as a JSON object or list; a data frame must have exactly one row. Errors are those of `as_json`."""
    record = x
    try:
        record = _record(x)
        return converted(record)
    except InvalidInput as error:
        raise _pointed(error, record, at) from None


def rows(X: Any, at: str = "/x") -> list[Any]:
    """Many inputs as JSON; the rows of a data frame become objects by column name, or lists if the columns are unnamed."""
    found, listed = None, []
    try:
        found = frame_of(X)
        if found is not None:
            return [converted(record) for record in _records(found)]
        if _is_of_numpy(X) and X.ndim:
            listed = X
            return converted(X)
        listed = as_list(X)
        return [converted(_record(x)) for x in listed]
    except InvalidInput as error:
        for i, x in enumerate(listed if found is None else _records(found)):
            row(x, f"{at}/{i}")
        raise _pointed(error, None, at) from None


def truth(y: Any, at: str = "/y") -> Any:
    """One truth as JSON. Raises WrongType if it is missing: None, NaN or NaT."""
    value = as_json(y, at)
    if value is None:
        raise _missing(at)
    return value


def truths(y: Any, at: str = "/y") -> list[Any]:
    """Many truths or weights as JSON. Raises WrongType for a missing one, and as `column` does."""
    values = column(y, at)
    if None in values:
        raise _missing(f"{at}/{values.index(None)}")
    return values


def column(y: Any, at: str = "/y") -> list[Any]:
    """Many values as JSON. Raises WrongType for a data frame that does not have exactly one column."""
    listed = None
    try:
        found = frame_of(y)
        if found is None:
            listed = as_list(y)
        else:
            if hasattr(found, "columns"):
                if len(found.columns) != 1:
                    raise _wrong_type(f"must be one column of a frame; this frame has {len(found.columns)}")
                found = found[found.columns[0]]
            listed = found.to_list()
        return converted(listed)
    except InvalidInput as error:
        raise _pointed(error, listed, at) from None


def as_list(values: Any) -> list[Any]:
    """The values as a list. Raises WrongType for a single value."""
    is_one = isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable)
    if is_one or getattr(values, "ndim", 1) == 0:
        raise _wrong_type(f"must be a list or column of several values, not {type(values).__name__}")
    if isinstance(values, set | frozenset):
        raise _wrong_type(f"must have an order, which a {type(values).__name__} has not; sorted() makes a list of it")
    of_arrow = getattr(values, "to_pylist", None)
    return list(values) if of_arrow is None else of_arrow()


def as_json(value: Any, at: str = "") -> Any:
    """The value as JSON; NaN and NaT become None. Raises NotFinite for infinity, WrongType for a type without JSON form.

    The error points to the place, below the pointer `at` of the value itself.
    """
    try:
        return converted(value)
    except InvalidInput as error:
        raise _pointed(error, value, at) from None


def converted(value: Any) -> Any:
    """`as_json` with errors that do not tell the place: only a failure should pay for finding it."""
    kind = type(value)
    if kind is float:
        if math.isinf(value):
            raise NotFinite(f"must be finite, not {value}; a missing value is None", errors=[])
        return None if value != value else value
    if value is None or kind in (bool, int, str):
        return value
    if isinstance(value, Mapping):
        return {str(key): converted(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [converted(entry) for entry in value]
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
    if hasattr(value, "__float__") and not isinstance(value, type):
        with suppress(ValueError, OverflowError):  # a signaling NaN, a fraction beyond floats
            return converted(float(value))
    raise _wrong_type(f"a value of type {kind.__name__} has no JSON form; pass a number, a string, a date or None")


def json_pointer(parts: Iterable[str | int]) -> str:
    """The JSON pointer (RFC 6901) of a path."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _pointed(error: InvalidInput, value: Any, at: str) -> InvalidInput:
    """The error of a value that could not be converted, with a pointer to the first part of it that cannot be."""
    for key, part in _parts(value):
        try:
            converted(part)
        except InvalidInput as found:
            return _pointed(found, part, at + json_pointer([key]))
    return error.at(at, error.detail)


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    """The parts of a value with their keys or indices, as `converted` takes it apart."""
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, list | tuple):
        return enumerate(value)
    if not _is_of_numpy(value):
        return ()
    if value.ndim:
        return enumerate(value)
    return [(name, value[name]) for name in value.dtype.names or ()]


def _missing(at: str) -> WrongType:
    return WrongType.at(at, "is missing (None, NaN or NaT); leave out rounds without one")


def _wrong_type(detail: str) -> WrongType:
    return WrongType(detail, errors=[])


def _record(x: Any) -> Any:
    """One input as a value to convert: a row of a frame as a dictionary or list, anything else as it is."""
    found = frame_of(x)
    if found is None:
        return x
    if hasattr(found, "columns"):
        records = list(_records(found))
        if len(records) != 1:
            raise _wrong_type(f"must be one row of a frame; this frame has {len(records)}")
        return records[0]
    names = _names(found)
    return found.to_list() if names is None else dict(zip(names, found.to_list(), strict=True))


def _records(found: Any) -> Iterable[Any]:
    """The rows of the narwhals view of a frame: dictionaries by column name, or tuples if the columns are unnamed."""
    if not hasattr(found, "columns"):
        return found.to_list()
    names, records = found.columns, found.iter_rows()
    if all(isinstance(name, str) for name in names):
        return (dict(zip(names, record, strict=True)) for record in records)
    return records


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _is_of_numpy(value: Any) -> bool:
    """Whether the value is a NumPy array or scalar, or an instance of a subclass."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def _from_numpy(value: Any) -> Any:
    if value.ndim:
        # `tolist` forgets the unit of times and the names of fields.
        return [converted(entry) for entry in (value if value.dtype.kind in "MV" else value.tolist())]
    if value.dtype.names is not None:
        return {name: converted(value[name]) for name in value.dtype.names}
    if value.dtype.kind in "mM" and value != value:
        return None
    if value.dtype.kind == "M":
        return str(value)
    if value.dtype.kind == "m":
        return float(value / sys.modules["numpy"].timedelta64(1, "s"))
    if value.dtype.kind == "f" and value.dtype.itemsize > 8:
        return converted(float(value))  # `tolist` leaves a long double as it is
    return converted(value.tolist())  # a masked value becomes None


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
        raise _wrong_type(f"a {type(value).__name__} has no rows yet; {remedy}")
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
    return _wrong_type(f"the columns of a frame need distinct names; {name!r} names {names.count(name)}")
