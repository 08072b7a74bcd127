"""What a caller passes to a learner: real numbers of any type that NumPy reads, converted to float64 and validated."""

from __future__ import annotations

import math
from numbers import Real
from operator import index
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import MAX_QUOTED, InputError, LabelError, NonFiniteError, ShapeError
from okl_core.types import F64, Interval, Target

_F64 = np.dtype(np.float64)

# -- conversion -------------------------------------------------------------------------------------------------------


def as_numbers(value: ArrayLike, name: str, field: str = "x") -> F64:
    """The value as float64: the same array if it already is one, else a copy. Null and masked values become NaN.

    Raises InputError for anything but real numbers, including strings of digits and dates, and ShapeError for rows of
    different lengths.
    """
    if type(value) is np.ndarray and value.dtype is _F64:
        return value
    if isinstance(value, np.ma.MaskedArray):
        value = np.where(np.ma.getmaskarray(value), np.nan, np.ma.getdata(value))
    try:
        array = np.asarray(value)
    except OverflowError:
        array = np.array(np.inf)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{name} is not an array: {str(error)[:MAX_QUOTED]}", field) from error
    if array.dtype.kind == "O":
        return np.array([_number(one, name, field) for one in array.flat], dtype=np.float64).reshape(array.shape)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} holds values of type {array.dtype}; it takes real numbers", field)
    with np.errstate(over="ignore"):  # long doubles may overflow to infinity, which is reported later
        return array.astype(np.float64)


def as_number(value: Any, name: str, field: str) -> float:
    """`as_numbers` for a single number."""
    # Making an array would take longer than a small learner's round.
    if isinstance(value, int | np.integer | np.floating):
        return _number(value, name, field)
    number = as_numbers(value, name, field)
    if number.ndim:
        raise ShapeError(f"{name} has shape {number.shape}; it must be one number", field)
    return float(number)


def _number(value: Any, name: str, field: str) -> float:
    if value is None:
        return math.nan
    if not isinstance(value, Real | np.bool_) and type(value).__name__ != "Decimal":
        raise InputError(f"{name} holds values of type {type(value).__name__}; it takes real numbers", field)
    try:
        return float(value)
    except OverflowError:
        return math.inf


# -- validation -------------------------------------------------------------------------------------------------------


def checked_input(x: ArrayLike, dim: int) -> F64:
    """x as a new aligned array, shape (dim,). Raises ShapeError, InputError, NonFiniteError."""
    x = np.array(as_numbers(x, "x"))
    if x.shape != (dim,):
        raise ShapeError(f"x has shape {x.shape}, this learner takes ({dim},)")
    # One inner product detects non-finite inputs; BLAS lets it overflow to inf without a warning.
    if not math.isfinite(ddot(x, x)):
        raise not_finite(x, "x")
    return x


def not_finite(x: F64, name: str, row: int | None = None) -> NonFiniteError:
    """The error for an x with infinite or NaN |x|^2: from a non-finite value, or from values whose squares overflow."""
    i = int(np.argmax(np.where(np.isfinite(x), np.abs(x), np.inf)))
    message = f"{name}[{i}] is {x[i]}; every input, and its square, must be finite"
    return NonFiniteError(message, "x", i if row is None else row)


def checked_dim(dim: SupportsIndex) -> int:
    """The number of inputs as an int. Raises ShapeError unless it is a whole number of at least 1."""
    try:
        size = index(dim)
    except TypeError as error:
        raise ShapeError(f"dim is {dim!r}; the number of inputs must be a whole number") from error
    if size < 1:
        raise ShapeError(f"dim is {size}; a learner needs at least one input")
    return size


def check_new_classes(y: F64, known: int) -> None:
    """Raise LabelError for a class in y, shape (n,), that skips a number: a new class must be the next unused one."""
    if y.max(initial=-1.0) < known:
        return
    next_new = np.maximum.accumulate(np.append(known, y[:-1] + 1.0))
    if (y > next_new).any():
        row = int(np.argmax(y > next_new))
        raise LabelError(f"y is {y[row]:.0f}, and the next new class is {next_new[row]:.0f}", "y", row)


def checked_truth(y: float, target: Target, ends: Interval, row: int | None = None) -> float:
    """A truth of this kind within these ends, as a float; `row` is named in errors.

    Raises LabelError, NonFiniteError, InputError.
    """
    where = "y" if row is None else f"y[{row}]"
    low, high = ends
    # A float of NumPy would turn all sums that it enters into its own kind.
    y = float(y) if isinstance(y, float) else as_number(y, where, "y")
    if target == "binary":
        if y not in (1.0, -1.0):
            raise LabelError(f"{where} is {y}; this learner takes the labels -1 and 1", "y", row)
    elif target == "class":
        if not (low <= y <= high and y.is_integer()):
            message = f"{where} is {y}; this learner takes the classes {low:.0f} to {high:.0f}"
            raise LabelError(message, "y", row)
    elif not math.isfinite(y):
        raise NonFiniteError(f"{where} is {y}; the truth must be finite", "y", row)
    elif not low <= y <= high:
        raise LabelError(
            f"{where} is {y}; this learner takes truths from {low} to {high} (widen `clip` or "
            "`truth_range`, or scale the truth)",
            "y",
            row,
        )
    return y
