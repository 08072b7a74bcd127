r"""Losses: value, derivative in the prediction, curvature and probability link.

`curvature(C)` is the largest sigma with l(a) >= l(b) + l'(b)(a - b) + (sigma/2) l'(b)^2 (a - b)^2 for all |a|, |b| <= C
and every truth; `weight(b, y, C)` is the same constant at the point b that was played, times l'(b)^2, so that it never
divides by a derivative that may be 0.

References: [calandriello2017] assumption 2; [jezequel2020] lemma 5 for the logistic weight.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Protocol, final

import numpy as np

from okl_core.types import F64, Target


class Loss(Protocol):
    name: ClassVar[str]
    target: ClassVar[Target]
    kink: ClassVar[bool]
    """Does the derivative jump somewhere?"""
    has_flat_part: ClassVar[bool]
    """Can the derivative be 0?"""

    def value(self, a: float, y: float) -> float:
        """l(a) for the prediction a and the truth y."""
        ...

    def values(self, a: F64, y: F64) -> F64:
        """The same for n rounds, shape (n,)."""
        ...

    def derivative(self, a: float, y: float) -> float:
        """l'(a)."""
        ...

    def side(self, a: float, y: float, is_active: bool) -> float:
        """The derivative on the recorded side of a kink: 0 unless `is_active`, whatever rounding made of a."""
        ...

    def curvature(self, C: float) -> float:
        """sigma, the constant of the module's docstring; 0 if the loss has none."""
        ...

    def weight(self, a: float, y: float, C: float) -> float:
        """The curvature at the point played times the squared derivative: w of adaptive steps."""
        ...

    def lipschitz(self, C: float) -> float:
        """L = max |l'| over |a| <= C and every truth (|y| <= C where the truth is real)."""
        ...

    def probability(self, a: float) -> float | None:
        """P(y = +1) of the prediction a, None where the loss defines none."""
        ...


@final
class Squared:
    """(a - y)^2, |y| <= C."""

    name: ClassVar[str] = "squared"
    target: ClassVar[Target] = "real"
    kink: ClassVar[bool] = False
    has_flat_part: ClassVar[bool] = True

    def value(self, a: float, y: float) -> float:
        return (a - y) ** 2

    def values(self, a: F64, y: F64) -> F64:
        return (a - y) ** 2

    def derivative(self, a: float, y: float) -> float:
        return 2.0 * (a - y)

    def side(self, a: float, y: float, is_active: bool) -> float:
        return self.derivative(a, y) if is_active else 0.0

    def curvature(self, C: float) -> float:
        return 1.0 / (8.0 * C * C)

    def weight(self, a: float, y: float, C: float) -> float:
        return 2.0

    def lipschitz(self, C: float) -> float:
        return 4.0 * C

    def probability(self, a: float) -> None:
        return None


@final
class Logistic:
    """log(1 + exp(-y a)), y in {-1, +1}."""

    name: ClassVar[str] = "logistic"
    target: ClassVar[Target] = "binary"
    kink: ClassVar[bool] = False
    has_flat_part: ClassVar[bool] = False

    def value(self, a: float, y: float) -> float:
        s = y * a
        return math.log1p(math.exp(-s)) if s > 0.0 else math.log1p(math.exp(s)) - s

    def values(self, a: F64, y: F64) -> F64:
        return np.logaddexp(0.0, -y * a)

    def derivative(self, a: float, y: float) -> float:
        return -y * sigmoid(-y * a)

    def side(self, a: float, y: float, is_active: bool) -> float:
        return self.derivative(a, y) if is_active else 0.0

    def curvature(self, C: float) -> float:
        return math.exp(-C)

    def weight(self, a: float, y: float, C: float) -> float:
        p = sigmoid(a)
        return p * (1.0 - p) / (1.0 + C)

    def lipschitz(self, C: float) -> float:
        return sigmoid(C)

    def probability(self, a: float) -> float:
        return sigmoid(a)


@final
class Hinge:
    """max(0, 1 - y a), y in {-1, +1}."""

    name: ClassVar[str] = "hinge"
    target: ClassVar[Target] = "binary"
    kink: ClassVar[bool] = True
    has_flat_part: ClassVar[bool] = True

    def value(self, a: float, y: float) -> float:
        return max(0.0, 1.0 - y * a)

    def values(self, a: F64, y: F64) -> F64:
        return np.maximum(0.0, 1.0 - y * a)

    def derivative(self, a: float, y: float) -> float:
        return -y if y * a < 1.0 else 0.0

    def side(self, a: float, y: float, is_active: bool) -> float:
        return -y if is_active else 0.0

    def curvature(self, C: float) -> float:
        return 0.0

    def weight(self, a: float, y: float, C: float) -> float:
        return 0.0

    def lipschitz(self, C: float) -> float:
        return 1.0

    def probability(self, a: float) -> None:
        return None


@final
class SquaredHinge:
    """max(0, 1 - y a)^2, y in {-1, +1}."""

    name: ClassVar[str] = "squared-hinge"
    target: ClassVar[Target] = "binary"
    kink: ClassVar[bool] = False
    has_flat_part: ClassVar[bool] = True

    def value(self, a: float, y: float) -> float:
        return max(0.0, 1.0 - y * a) ** 2

    def values(self, a: F64, y: F64) -> F64:
        return np.maximum(0.0, 1.0 - y * a) ** 2

    def derivative(self, a: float, y: float) -> float:
        return -2.0 * y * max(0.0, 1.0 - y * a)

    def side(self, a: float, y: float, is_active: bool) -> float:
        return self.derivative(a, y) if is_active else 0.0

    def curvature(self, C: float) -> float:
        return self.weight(-C, 1.0, C) / self.derivative(-C, 1.0) ** 2

    def weight(self, a: float, y: float, C: float) -> float:
        # On |a| <= C <= 1 the loss is the parabola (1 - y a)^2, to the end where s = 0. Beyond:
        # with s = 1 - y b > 0 and u = y (a - b) the condition is max(0, s - u)^2 >= s^2 - 2su + w u^2 / 2, tightest at
        # the largest u = C - 1 + s when that exceeds s.
        s = max(0.0, 1.0 - y * a)
        if C <= 1.0:
            return 2.0
        if s == 0.0:
            return 0.0
        u = C - 1.0 + s
        return 2.0 * s * (u + C - 1.0) / (u * u)

    def lipschitz(self, C: float) -> float:
        return 2.0 * (1.0 + C)

    def probability(self, a: float) -> None:
        return None


def probabilities(loss: Loss, values: F64) -> F64 | None:
    """P(y = +1) of n predictions, shape (n,); None where the loss defines none."""
    found = [loss.probability(value) for value in values.tolist()]
    return None if None in found else np.array(found, dtype=np.float64)


def log_loss(p: float) -> float:
    """-log p of the probability that was given to the truth."""
    return -math.log(p) if p > 0.0 else math.inf


def sigmoid(a: float) -> float:
    """1 / (1 + exp(-a)), without overflow."""
    if a >= 0.0:
        return 1.0 / (1.0 + math.exp(-a))
    e = math.exp(a)
    return e / (1.0 + e)


LossName = Literal["squared", "logistic", "hinge", "squared-hinge"]

LOSSES: dict[str, Loss] = {loss.name: loss for loss in (Squared(), Logistic(), Hinge(), SquaredHinge())}
