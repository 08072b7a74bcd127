"""What no round may bring into the arithmetic: numbers that are not finite, and weights beside which alpha is lost."""

from __future__ import annotations

import math

from okl_core.errors import DivergedError

HEAVIEST = 1e11
"""A round with w kappa above this share of alpha is refused, and one without weight if kappa is: alpha would be lost to
rounding in A. A round errs by some 50 eps w kappa / alpha: up to 1e13 `run` and `update` of a linear kernel would differ by
1e-2."""


def require_finite(t: int, *numbers: float) -> None:
    if not all(map(math.isfinite, numbers)):
        raise DivergedError(f"round {t} overflows; scale the inputs down, or raise the regularization")


def require_bearable(t: int, w: float, kappa: float, alpha: float) -> None:
    """Raises DivergedError for a round beside which alpha would be lost."""
    if w * kappa > HEAVIEST * alpha:
        raise DivergedError(
            f"round {t}: w k(x, x) = {w * kappa:.1e} is above {HEAVIEST:.0e} times the regularization; "
            "scale the inputs down, or raise the regularization"
        )
