"""What no round may bring into the arithmetic: numbers that are not finite, and weights beside which alpha is lost."""

from __future__ import annotations

import math

from okl_core.errors import DivergedError
from okl_core.linalg.precision import DOUBLE, FloatType

HEAVIEST = 1e11
"""A round with w kappa above this share of alpha is refused, and one without weight if kappa is: alpha would be lost to
rounding in A. A round errs by some 50 eps w kappa / alpha: up to 1e13 `run` and `update` of a linear kernel would differ by
1e-2."""

SINGLE_HEAVIEST = 1e4
"""The same where A is kept in single precision. Here the two differ by 1e-2; from 1e6 on forecasts are wrong, and from 1e8 on
the inverse grows until it overflows. Leverage scores err by a thousandth: at 1e6 they would keep a point again and again."""


def require_finite(t: int, *numbers: float) -> None:
    if not all(map(math.isfinite, numbers)):
        raise DivergedError(f"round {t} overflows; scale the inputs down, or raise the regularization")


def kernel_overflow() -> DivergedError:
    """Of an input whose k(x, x) is not finite."""
    return DivergedError("k(x, x) overflows; scale the inputs down")


def require_bearable(t: int, w: float, kappa: float, alpha: float, floats: FloatType = DOUBLE) -> None:
    """Raises DivergedError for a round beside which alpha would be lost from what is kept in these."""
    is_double = floats is DOUBLE
    heaviest = HEAVIEST if is_double else SINGLE_HEAVIEST
    if w * kappa > heaviest * alpha:
        raise DivergedError(
            f"round {t}: w k(x, x) = {w * kappa:.1e} is above {heaviest:.0e} times the regularization; "
            f"scale the inputs down, or raise the regularization{'' if is_double else ', or take double precision'}"
        )
