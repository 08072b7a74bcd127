"""Guards that refuse a round with non-finite numbers, or with a weight that would swamp the regularization alpha."""

from __future__ import annotations

import math

from okl_core.errors import DivergedError
from okl_core.linalg.precision import DOUBLE, FloatType

HEAVIEST = 1e11
"""Largest w kappa / alpha of a round, and largest kappa / alpha of a round without weight. Beyond it the round is refused:
alpha would be lost to rounding in A. The error of a round is some 50 eps w kappa / alpha; with a limit of 1e13, `run` and
`update` of a linear kernel would differ by 1e-2."""

SINGLE_HEAVIEST = 1e4
"""`HEAVIEST` for A in single precision. At this limit `run` and `update` differ by 1e-2; from 1e6 on forecasts are wrong,
and from 1e8 on the inverse grows until it overflows. Leverage scores are off by a thousandth; at 1e6 the same point would be
kept again and again."""


LIGHTEST = 1e-2
"""Least w with which a round counts here if its forecast depends on q. Between BLAS kernels q differs by up to 0.2 eps
kappa / alpha, and the forecasts of aioli by as much, however small w is: by 5e-4 at the limit in double precision."""

SINGLE_LARGEST = 1e30
"""Largest number that enters a matrix in single precision, whose sums of products overflow from 3e38 on."""

LARGEST_TERM = 1e292
"""Largest term of a running sum, which then stays finite for 2^53 rounds."""


def require_finite(t: int, *numbers: float) -> None:
    if not all(map(math.isfinite, numbers)):
        raise DivergedError(f"round {t} overflows; scale the inputs down, or raise the regularization")


def require_summable(t: int, *terms: float) -> None:
    """Raise DivergedError for a term whose running sum might overflow: a state with an infinite sum is not restored."""
    if not all(term <= LARGEST_TERM for term in terms):
        raise DivergedError(f"round {t}: the square of the error overflows; scale the truths down")


def require_single(largest: float) -> None:
    """Raise DivergedError for numbers, the largest of this size, that single precision cannot take."""
    if not largest <= SINGLE_LARGEST:
        raise DivergedError(
            f"{largest:.1e} is too large for single precision; scale the inputs down, or take double precision"
        )


def kernel_overflow() -> DivergedError:
    """Return the error for an input whose k(x, x) is not finite."""
    return DivergedError("k(x, x) overflows; scale the inputs down")


def require_bearable(
    t: int, w: float, kappa: float, alpha: float, floats: FloatType = DOUBLE, *, needs_variance: bool = False
) -> None:
    """Raise DivergedError if a round would swamp alpha in a matrix kept in this precision.

    `needs_variance`: whether its forecast depends on q.
    """
    is_double = floats is DOUBLE
    heaviest = HEAVIEST if is_double else SINGLE_HEAVIEST
    w = max(w, LIGHTEST) if needs_variance else w
    if w * kappa > heaviest * alpha:
        raise DivergedError(
            f"round {t}: w k(x, x) = {w * kappa:.1e} is above {heaviest:.0e} times the regularization; "
            f"scale the inputs down, or raise the regularization{'' if is_double else ', or take double precision'}"
        )
