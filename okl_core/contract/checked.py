"""Validation of one input and one truth for a learner."""

from __future__ import annotations

import math
from operator import index
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg.blas import ddot  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.given import as_number, as_numbers
from okl_core.errors import LabelError, NonFiniteError, ShapeError
from okl_core.types import F64, Interval, Target


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
