"""Conversion of a caller's numbers to float64, from any type that NumPy reads, such as rows and columns of data frames."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from okl_core.errors import MAX_QUOTED, InputError, ShapeError
from okl_core.types import F64

_F64 = np.dtype(np.float64)


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
