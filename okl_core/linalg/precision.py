"""The precision in which large matrices are kept, single or double, and the BLAS routines for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from okl_core.types import F64, Stored

PrecisionName = Literal["double", "single"]

Routine = Callable[..., Any]


class FloatType(NamedTuple):
    """A precision and its routines. Vectors are always float64; single-precision routines round their arguments."""

    precision: PrecisionName
    dtype: np.dtype[Any]
    rounding: float
    """Machine epsilon, relative to that of float64."""
    lower: Literal[0, 1]
    """The triangle of a symmetric matrix that is kept, as BLAS is told it: 1 for the lower, 0 for the upper one.

    In single precision it is the upper one: with the lower one, OpenBLAS 0.3.30 reads a number that was never written, which
    is NaN after any earlier overflow, on processors older than Nehalem. On newer ones the upper one is up to 1.3 times as
    fast in single precision, the lower one up to 1.2 times in double.
    """
    symv: Routine
    symm: Routine
    syr: Routine
    syrk: Routine
    tpsv: Routine
    trsm: Routine
    tpttr: Routine

    @classmethod
    def made(cls, precision: PrecisionName, dtype: np.dtype[Any]) -> FloatType:
        rounding = float(np.finfo(dtype).eps / np.finfo(np.float64).eps)
        symv, symm, syr, syrk = get_blas_funcs(("symv", "symm", "syr", "syrk"), dtype=dtype)
        tpsv, trsm = get_blas_funcs(("tpsv", "trsm"), dtype=dtype)
        [tpttr] = get_lapack_funcs(("tpttr",), dtype=dtype)
        lower = 1 if precision == "double" else 0
        return cls(precision, dtype, rounding, lower, symv, symm, syr, syrk, tpsv, trsm, tpttr)

    @classmethod
    def of(cls, precision: PrecisionName) -> FloatType:
        return SINGLE if precision == "single" else DOUBLE

    @classmethod
    def in_which(cls, array: Stored) -> FloatType:
        """Return the precision of an array: single for float32, else double."""
        return SINGLE if array.dtype == np.float32 else DOUBLE

    def __reduce__(self) -> tuple[Callable[[PrecisionName], FloatType], tuple[PrecisionName]]:
        """Pickle by name, since the routines cannot be pickled; a copy is the same object."""
        return FloatType.of, (self.precision,)

    def rounded(self, array: F64) -> F64:
        """Return a C-ordered copy in this precision; what is too large for it becomes infinite, without a warning."""
        if self is DOUBLE:
            return np.array(array, dtype=np.float64, order="C")
        with np.errstate(over="ignore"):
            return np.array(array, dtype=self.dtype, order="C")

    def widened(self, array: F64) -> F64:
        """Return a result of this precision as float64, whatever its annotation says."""
        return array if self is DOUBLE else array.astype(np.float64)


DOUBLE = FloatType.made("double", np.dtype(np.float64))
SINGLE = FloatType.made("single", np.dtype(np.float32))
