r"""Losses l(a, y) of a prediction a and a truth y: value, derivative, curvature, probability and convex conjugate.

`curvature(C)` is the largest sigma with l(a) >= l(b) + l'(b)(a - b) + (sigma/2) l'(b)^2 (a - b)^2 for all |a|, |b| <= C
and every truth. `weight(b, y, C)` is l'(b)^2 times the same constant at the played point b, or for logistic a lower bound
of it; this form avoids a division by l'(b), which may be 0. Real-valued truths have |y| <= C.

References: [calandriello2017] assumption 2; [jezequel2020] lemma 5 for the logistic weight; [boyd2004] section 3.3.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, final

import numpy as np

from okl_core.errors import ConfigError
from okl_core.types import F64, Forecast, Registered, Target

NEAR = 1e-2
"""Distance to the largest |u| below which `least_flatness` uses five terms of its series.

There the closed formula has an error above 1e-13, and the series a smaller one.
"""
FAINT = 1e-300
"""Smallest probability whose product with the square of `NEAR` keeps full float64 precision."""
LEAST_PROBABILITY = 1e-300
"""Smallest probability that multiclass learners give to a class, so that the log-loss stays finite for every truth."""


class Loss(ABC):
    """A convex loss: its derivatives for the learner, constants for regret bounds, and its conjugate for the comparator."""

    name: ClassVar[str]
    """Wire name, kebab-case, permanent."""
    target: ClassVar[Target]
    kink: ClassVar[bool] = False
    """Whether the derivative jumps somewhere. A learner then records whether it was 0, and `side` follows the record."""
    has_flat_part: ClassVar[bool] = True
    """Whether the derivative can be 0."""
    has_margin: ClassVar[bool] = False
    """Whether the loss is 0 for all a with y a >= 1."""

    @abstractmethod
    def value(self, a: float, y: float) -> float:
        """l(a) for the prediction a and the truth y."""

    @abstractmethod
    def values(self, a: F64, y: F64) -> F64:
        """l(a) for n rounds, shape (n,)."""

    @abstractmethod
    def derivative(self, a: float, y: float) -> float:
        """l'(a); at a kink, one of the subgradients."""

    def side(self, a: float, y: float, is_active: bool) -> float:
        """The derivative on the recorded side of a kink: 0 unless `is_active`, regardless of rounding in a."""
        return self.derivative(a, y) if is_active else 0.0

    @abstractmethod
    def curvature(self, C: float) -> float:
        """sigma, the constant of the module's docstring; 0 if the loss has none."""

    @abstractmethod
    def weight(self, a: float, y: float, C: float) -> float:
        """The curvature at the played point times the squared derivative: w of adaptive steps."""

    @abstractmethod
    def lipschitz(self, C: float) -> float:
        """L = max |l'| over |a| <= C and every truth; infinite for an infinite C if no number bounds it."""

    def probability(self, a: float) -> float | None:
        """P(y = +1) for the prediction a; None if the loss defines no probability."""
        return None

    def forecast(self, a: float) -> Forecast:
        """The forecast of a learner whose prediction is a, with a probability if the loss defines one."""
        return Forecast(a, self.probability(a))

    @abstractmethod
    def conjugate(self, p: F64, y: F64, C: float) -> F64:
        """sup_{|a| <= C} (p a - l(a, y)) for n slopes p, shape (n,).

        A truth may exceed C. Without a bound, C = inf, p must be a slope of the loss, up to rounding.
        """

    def lines(self, y: F64) -> tuple[F64, F64]:
        """b and c, shape (k, n), with l(a, y) = h(max_k (b_k + c_k a)) for a smooth h; k = 0 if l itself is smooth."""
        none = np.empty((0, len(y)))
        return none, none

    @abstractmethod
    def slopes(self, u: F64, y: F64) -> tuple[F64, F64]:
        """First and second derivative at n points, shape (n,) each: of h if `lines` are given, else of l."""


LOSSES: dict[str, Loss] = {}
"""The registered losses by name."""


def register_loss(loss: Loss) -> Loss:
    """Register a loss, so that configs accept its name.

    Parameters
    ----------
    loss : Loss
        Registering an equal loss again is harmless. `okl_core.contract.loss_checks.check_loss` checks its contract.

    Returns
    -------
    Loss
        The loss registered under that name.

    Raises
    ------
    ConfigError
        A different loss has the same name.
    """
    known = LOSSES.setdefault(loss.name, loss)
    if type(known) is not type(loss) or vars(known) != vars(loss):
        raise ConfigError(f"two losses are called {loss.name!r}")
    return known


LossName = Annotated[str, Registered(LOSSES, lambda: Literal[tuple(LOSSES)])]
"""The loss of a config: the name of a registered loss."""


@final
class Squared(Loss):
    """(a - y)^2, |y| <= C."""

    name: ClassVar[str] = "squared"
    target: ClassVar[Target] = "real"

    def value(self, a: float, y: float) -> float:
        return (a - y) ** 2

    def values(self, a: F64, y: F64) -> F64:
        return (a - y) ** 2

    def derivative(self, a: float, y: float) -> float:
        return 2.0 * (a - y)

    def curvature(self, C: float) -> float:
        return 1.0 / (8.0 * C * C)

    def weight(self, a: float, y: float, C: float) -> float:
        return 2.0

    def lipschitz(self, C: float) -> float:
        return 4.0 * C

    def conjugate(self, p: F64, y: F64, C: float) -> F64:
        a = np.clip(y + 0.5 * p, -C, C)
        return p * a - (a - y) ** 2

    def slopes(self, u: F64, y: F64) -> tuple[F64, F64]:
        return 2.0 * (u - y), np.full_like(u, 2.0)


@final
class Logistic(Loss):
    """log(1 + exp(-y a)), y in {-1, +1}."""

    name: ClassVar[str] = "logistic"
    target: ClassVar[Target] = "binary"
    has_flat_part: ClassVar[bool] = False

    def value(self, a: float, y: float) -> float:
        s = y * a
        return math.log1p(math.exp(-s)) if s > 0.0 else math.log1p(math.exp(s)) - s

    def values(self, a: F64, y: F64) -> F64:
        return np.logaddexp(0.0, -y * a)

    def derivative(self, a: float, y: float) -> float:
        return -y * sigmoid(-y * a)

    def curvature(self, C: float) -> float:
        return math.exp(-C)

    def weight(self, a: float, y: float, C: float) -> float:
        p = sigmoid(a)
        return p * (1.0 - p) / (1.0 + C)

    def lipschitz(self, C: float) -> float:
        return sigmoid(C)

    def probability(self, a: float) -> float:
        return sigmoid(a)

    def conjugate(self, p: F64, y: F64, C: float) -> F64:
        from scipy.special import logit, xlog1py, xlogy

        s = np.clip(-y * p, 0.0, 1.0)
        if math.isinf(C):
            return xlogy(s, s) + xlog1py(1.0 - s, -s)
        m = np.clip(-logit(s), -C, C)
        return y * p * m - np.logaddexp(0.0, -m)

    def slopes(self, u: F64, y: F64) -> tuple[F64, F64]:
        s = sigmoids(-y * u)
        return -y * s, s * (1.0 - s)


@final
class Hinge(Loss):
    """max(0, 1 - y a), y in {-1, +1}."""

    name: ClassVar[str] = "hinge"
    target: ClassVar[Target] = "binary"
    has_margin: ClassVar[bool] = True
    kink: ClassVar[bool] = True

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

    def conjugate(self, p: F64, y: F64, C: float) -> F64:
        s = -y * p
        if math.isinf(C):
            return -np.clip(s, 0.0, 1.0)
        m = np.where(s > 1.0, -C, np.where(s < 0.0, C, min(1.0, C)))
        return -s * m - np.maximum(0.0, 1.0 - m)

    def lines(self, y: F64) -> tuple[F64, F64]:
        return _margin_lines(y)

    def slopes(self, u: F64, y: F64) -> tuple[F64, F64]:
        return np.ones_like(u), np.zeros_like(u)


@final
class SquaredHinge(Loss):
    """max(0, 1 - y a)^2, y in {-1, +1}."""

    name: ClassVar[str] = "squared-hinge"
    target: ClassVar[Target] = "binary"
    has_margin: ClassVar[bool] = True

    def value(self, a: float, y: float) -> float:
        return max(0.0, 1.0 - y * a) ** 2

    def values(self, a: F64, y: F64) -> F64:
        return np.maximum(0.0, 1.0 - y * a) ** 2

    def derivative(self, a: float, y: float) -> float:
        return -2.0 * y * max(0.0, 1.0 - y * a)

    def curvature(self, C: float) -> float:
        return self.weight(-C, 1.0, C) / self.derivative(-C, 1.0) ** 2

    def weight(self, a: float, y: float, C: float) -> float:
        # For C <= 1 the loss on |a| <= C is the parabola (1 - y a)^2, up to the end where s = 0. For C > 1,
        # with s = 1 - y b > 0 and u = y (a - b), the condition is max(0, s - u)^2 >= s^2 - 2su + w u^2 / 2, tightest at
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

    def conjugate(self, p: F64, y: F64, C: float) -> F64:
        s = -y * p
        if math.isinf(C):
            s = np.maximum(s, 0.0)
            return s * (0.25 * s - 1.0)
        m = np.where(s < 0.0, C, np.clip(1.0 - 0.5 * s, -C, C))
        return -s * m - np.maximum(0.0, 1.0 - m) ** 2

    def lines(self, y: F64) -> tuple[F64, F64]:
        return _margin_lines(y)

    def slopes(self, u: F64, y: F64) -> tuple[F64, F64]:
        return 2.0 * u, np.full_like(u, 2.0)


def _margin_lines(y: F64) -> tuple[F64, F64]:
    """The lines 0 and 1 - y a of the two hinge losses."""
    return np.array((np.zeros_like(y), np.ones_like(y))), np.array((np.zeros_like(y), -y))


def probabilities(loss: Loss, values: F64) -> F64 | None:
    """P(y = +1) for n predictions, shape (n,); None if the loss defines no probability."""
    single = [loss.probability(value) for value in values.tolist()]
    return None if None in single else np.array(single, dtype=np.float64)


def log_loss(p: float) -> float:
    """-log p, p the probability forecast for the truth."""
    return 0.0 - math.log(p) if p > 0.0 else math.inf  # 0.0, not -0.0, for p = 1


def sigmoid(a: float) -> float:
    """1 / (1 + exp(-a)), without overflow."""
    if a >= 0.0:
        return 1.0 / (1.0 + math.exp(-a))
    e = math.exp(a)
    return e / (1.0 + e)


def least_flatness(a: float, reach: float) -> float:
    """The least kappa with l(a) + l'(a) (u - a) + l''(a) (u - a)^2 / (2 kappa) <= l(u) for all |u| <= reach, l logistic.

    kappa is at most 1 + reach / 2, which is returned from |a| = 691 on; below that the relative error is at most 1e-12.

    The parabola touches l once more where |u| is largest, on the side of a: docs/theorems.md, 2. With d the distance from
    |a| to that point, l(u) - l(a) - l'(a) (u - a) is p d + log(1 - p + p e^-d): the cumulant generating function of a
    Bernoulli(p) variable from its second cumulant on. The cumulants are the terms of the series.
    """
    b = abs(a)
    d, p = reach - b, sigmoid(-b)
    if p < FAINT:
        return 1.0 + 0.5 * reach
    v, skew = p * (1.0 - p), 1.0 - 2.0 * p
    if abs(d) < NEAR:
        fourth = skew * (1.0 - 12.0 * v) / 60.0 - d * (1.0 - 30.0 * v * (1.0 - 4.0 * v)) / 360.0
        return 1.0 / (1.0 - d * (skew / 3.0 - d * ((1.0 - 6.0 * v) / 12.0 - d * fourth)))
    # p e^-d is e^-reach / (1 + e^-b), where e^-d could overflow.
    change = p * math.expm1(-d) if d > -1.0 else (math.exp(-reach) - math.exp(-b)) * (1.0 - p)
    return 0.5 * v * d * d / (p * d + math.log1p(change))


def sigmoids(a: F64) -> F64:
    """`sigmoid`, elementwise. Importing scipy's version would take a twentieth of a service's start-up time."""
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-a))


for _built_in in (Squared(), Logistic(), Hinge(), SquaredHinge()):
    register_loss(_built_in)
