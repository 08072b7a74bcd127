"""The contract of a loss as functions: consistency of its members, and the inequalities of `okl_core.losses`.

Each check takes a loss and returns None or raises ContractViolation. `check_loss` runs them all:

    from okl_core.contract.loss_checks import check_loss
    check_loss(my_loss)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

import numpy as np

from okl_core.contract.agreement import require, run_checks
from okl_core.losses import Loss
from okl_core.types import F64

CLIPS = (0.3, 1.0, 1.7, 3.0, 8.0)
"""Values of C, on both sides of the kink of the hinge losses."""

FAR = 1e4
"""A prediction and a bound for which nothing may overflow."""

ROUNDING = 1e-9
"""Largest violation of an inequality, relative to max(1, size)."""

STEP = 1e-6
"""Step of a difference quotient."""


def check_loss(loss: Loss) -> None:
    """Run every check of `LOSS_CHECKS`.

    Parameters
    ----------
    loss : Loss
        It need not be registered.

    Raises
    ------
    ContractViolation
        Lists each failed check.

    Examples
    --------
    >>> from okl_core.losses import LOSSES
    >>> check_loss(LOSSES["hinge"])
    """
    run_checks(LOSS_CHECKS, loss, f"the loss {loss.name!r}")


def check_name(loss: Loss) -> None:
    """The name is kebab-case; the truths are labels or real numbers."""
    is_kebab = re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", loss.name) is not None
    require(is_kebab, f"the name {loss.name!r} is not kebab-case")
    require(loss.target in ("binary", "real"), f"the target {loss.target!r} is neither 'binary' nor 'real'")


def check_values(loss: Loss) -> None:
    """`values` equals `value` in every round."""
    for y, a in _streams(loss, 4.0):
        expected = np.array([loss.value(value, y) for value in a.tolist()])
        _require_close(expected, loss.values(a, np.full(len(a), y)), f"values and value for the truth {y:g}")


def check_derivative(loss: Loss) -> None:
    """l(b) >= l(a) + l'(a) (b - a) for all a and b, also near a: the loss is convex, and l' is a subgradient."""
    for y, a in _streams(loss, 4.0):
        values, g = loss.values(a, np.full(len(a), y)), _derivatives(loss, a, y)
        gaps = values - values[:, None] - g[:, None] * (a - a[:, None])
        scale = np.maximum(1.0, np.abs(values)) + np.maximum(1.0, np.abs(values))[:, None]
        _require_at_least(gaps / scale, f"for the truth {y:g}: l(b) - l(a) - l'(a) (b - a)")
        for step in (-STEP, STEP):
            rise = (loss.values(a + step, np.full(len(a), y)) - values) / step
            # Where the loss is smooth, the quotient is off by about one step; at a kink by more, on the allowed side.
            room = math.copysign(1.0, step) * (rise - g) + 100.0 * STEP * np.maximum(1.0, np.abs(g))
            _require_at_least(room, f"for the truth {y:g}: difference quotients about l'")


def check_kink(loss: Loss) -> None:
    """`kink` is true if the derivative jumps; `side` is the derivative if the record is active, and 0 otherwise."""
    jumps = [jump for y, a in _streams(loss, 4.0) if (jump := _jump(loss, a, y)) is not None]
    require(loss.kink == bool(jumps), f"kink is {loss.kink}, and the derivative jumps at {[a for a, _ in jumps]}")
    for y, a in _streams(loss, 4.0):
        for value, g in zip(a.tolist(), _derivatives(loss, a, y).tolist(), strict=True):
            sides = loss.side(value, y, g != 0.0), loss.side(value, y, False)
            require(
                sides == (g, 0.0), f"the derivative at {value:g} for the truth {y:g} is {g:g}, the sides are {sides}"
            )
    for a, y in jumps:
        require(loss.side(a, y, True) != 0.0, f"the active side at {a:g} has the derivative 0")


def check_flat_part(loss: Loss) -> None:
    """Without a flat part, the derivative is nowhere 0."""
    for y, a in _streams(loss, 4.0):
        is_flat = bool((_derivatives(loss, a, y) == 0.0).any())
        require(loss.has_flat_part or not is_flat, f"the derivative is 0 somewhere for the truth {y:g}")


def check_margin(loss: Loss) -> None:
    """With a margin, the loss and its derivative are 0 beyond it, and so is the weight if predictions go further."""
    values = [a for a in (1.0, 1.5, 3.9) if loss.has_margin]
    triples = [
        (loss.value(y * a, y), loss.derivative(y * a, y), loss.weight(y * a, y, 4.0))
        for a in values
        for y in (-1.0, 1.0)
    ]
    require(all(numbers == (0.0, 0.0, 0.0) for numbers in triples), f"beyond the margin it has {triples}")


def check_slopes(loss: Loss) -> None:
    """`slopes` and `lines` give the derivative of h(max_k (b_k + c_k a)), and the second slope is that of the first."""
    for y, a in _streams(loss, 4.0):
        g, y_n = _derivatives(loss, a, y), np.full(len(a), y)
        b, c = loss.lines(y_n)
        at, chain, unique = a, 1.0, np.full(len(a), True)
        if len(b):
            lines = b + c * a
            top = lines.argmax(axis=0)
            at, chain = lines.max(axis=0), np.take_along_axis(c, top[None, :], axis=0)[0]
            # Where two lines with different slopes meet, the derivative may be any value between the slopes.
            unique = (np.where(c == chain, -np.inf, lines).max(axis=0)) < at - 1e-9
        near = [loss.slopes(at + by, y_n) for by in (-STEP, 0.0, STEP)]
        (below, _), (first, _), (above, _) = near
        _require_close(g[unique], (first * chain)[unique], f"the derivative and slopes for the truth {y:g}")
        seconds = np.array([second for _, second in near])
        _require_at_least(seconds, f"the second derivative for the truth {y:g}")
        # Where the second derivative jumps, the quotient lies between its two sides.
        rise, room = (above - below) / (2.0 * STEP), 100.0 * STEP
        _require_at_least(rise - seconds.min(axis=0) + room, f"differences of the slopes less the second, truth {y:g}")
        _require_at_least(seconds.max(axis=0) - rise + room, f"the second less differences of the slopes, truth {y:g}")


def check_curvature(loss: Loss) -> None:
    """l(a) >= l(b) + l'(b)(a - b) + (s / 2) (a - b)^2 with s = curvature(C) l'(b)^2, and with s = weight(b, y, C)."""
    for C in CLIPS:
        sigma = loss.curvature(C)
        require(sigma >= 0.0, f"curvature({C}) is {sigma}")
        for y, a in _streams(loss, C):
            values, g = loss.values(a, np.full(len(a), y)), _derivatives(loss, a, y)
            weights = np.array([loss.weight(value, y, C) for value in a.tolist()])
            _require_at_least(weights, f"weight for C = {C}, truth {y:g}")
            # Rows are indexed by b, columns by a.
            steps = a - a[:, None]
            gaps = values - values[:, None] - g[:, None] * steps
            scale = 1.0 + np.abs(values) + np.abs(values)[:, None]
            for what, s in (("curvature", sigma * g * g), ("weight", weights)):
                room = gaps - 0.5 * s[:, None] * steps**2
                _require_at_least(room / scale, f"the inequality of the {what} for C = {C}, truth {y:g}")


def check_lipschitz(loss: Loss) -> None:
    """|l'| <= lipschitz(C)."""
    for C in CLIPS:
        L = loss.lipschitz(C)
        for y, a in _streams(loss, C):
            _require_at_least(L - np.abs(_derivatives(loss, a, y)), f"lipschitz({C}) - |l'| for the truth {y:g}")


def check_probability(loss: Loss) -> None:
    """The probability is None for every prediction, or lies between 0 and 1 and does not fall as the prediction grows."""
    a = np.linspace(-8.0, 8.0, 161)
    answers = [loss.probability(value) for value in [-FAR, *a.tolist(), FAR]]
    known = [p for p in answers if p is not None]
    require(len(known) in (0, len(answers)), "some predictions have a probability, some have none")
    require(all(0.0 < p < 1.0 for p in known[1:-1]), "a probability is not between 0 and 1")
    require(
        known == sorted(known) and all(0.0 <= p <= 1.0 for p in known), "the probability does not rise to at most 1"
    )


def check_conjugate(loss: Loss) -> None:
    """`conjugate` is the largest p a - l(a, y) with |a| <= C, also for truths beyond C, and for slopes p if C = inf."""
    for C in (*CLIPS, math.inf):
        for y, a in _streams(loss, min(C, max(CLIPS)), 4.0):
            values, slopes = loss.values(a, np.full(len(a), y)), _derivatives(loss, a, y)
            p = slopes if math.isinf(C) else np.concatenate((slopes, np.linspace(-9.0, 9.0, 37)))
            room = loss.conjugate(p, np.full(len(p), y), C) - (p[:, None] * a - values).max(axis=1)
            scale, what = 1.0 + np.abs(values).max(), f"conjugate(p, {y:g}, {C}) - sup (p a - l(a))"
            _require_at_least(room / scale, what)
            # If p lies between the slopes at two neighbouring points, the maximum lies between these points; otherwise it
            # is at a grid point or an end.
            i = np.searchsorted(slopes, p).clip(1, len(a) - 1)
            between = np.maximum(0.0, np.minimum(p - slopes[i - 1], slopes[i] - p)) * (a[i] - a[i - 1])
            _require_at_least((between - room) / scale, f"-({what})")


def check_far_predictions(loss: Loss) -> None:
    """Every number is finite for large predictions and bounds."""
    for y, _ in _streams(loss, 1.0):
        for a in (-FAR, FAR):
            numbers = {
                "value": loss.value(a, y),
                "derivative": loss.derivative(a, y),
                "weight": loss.weight(a, y, 1.0),
                "curvature": loss.curvature(FAR),
                "lipschitz": loss.lipschitz(FAR),
                "values": float(loss.values(np.array([a]), np.array([y]))[0]),
            }
            for name, number in numbers.items():
                require(math.isfinite(number), f"{name} at {a:g} for the truth {y:g} is {number}")


LOSS_CHECKS: list[Callable[[Loss], None]] = [
    check_name,
    check_values,
    check_derivative,
    check_kink,
    check_flat_part,
    check_margin,
    check_slopes,
    check_curvature,
    check_lipschitz,
    check_probability,
    check_conjugate,
    check_far_predictions,
]
"""The contract, clause by clause."""


def _streams(loss: Loss, C: float, largest: float | None = None) -> Iterator[tuple[float, F64]]:
    """Yield truths y, each with predictions from -C to C that include 0, y and +-1.

    Real truths range from -C to C, or over [-largest, largest] if `largest` is given.
    """
    Y = C if largest is None else largest
    for y in (-1.0, 1.0) if loss.target == "binary" else np.linspace(-Y, Y, 11).tolist():
        yield y, np.unique(np.clip(np.concatenate((np.linspace(-C, C, 100), (0.0, y, -1.0, 1.0))), -C, C))


def _derivatives(loss: Loss, a: F64, y: float) -> F64:
    return np.array([loss.derivative(value, y) for value in a.tolist()])


def _jump(loss: Loss, a: F64, y: float) -> tuple[float, float] | None:
    """A prediction next to a jump of the derivative, and y; found by bisecting each gap to the side that rises more."""
    for low, high in zip(a[:-1].tolist(), a[1:].tolist(), strict=True):
        for _ in range(60):
            middle = 0.5 * (low + high)
            rises = [loss.derivative(middle, y) - loss.derivative(low, y)]
            rises.append(loss.derivative(high, y) - loss.derivative(middle, y))
            low, high = (low, middle) if rises[0] > rises[1] else (middle, high)
        if loss.derivative(high, y) - loss.derivative(low, y) > STEP:
            return low, y
    return None


def _require_close(expected: F64, actual: F64, what: str) -> None:
    require(expected.shape == actual.shape, f"{what}: shapes {expected.shape} and {actual.shape}")
    worst = float((np.abs(expected - actual) / np.maximum(1.0, np.abs(expected))).max(initial=0.0))
    require(worst <= ROUNDING, f"{what} differ by {worst:.3g}")


def _require_at_least(numbers: F64, what: str) -> None:
    worst = float(numbers.min(initial=math.inf))
    require(worst >= -ROUNDING, f"{what} is {worst:.3g}, below 0")
