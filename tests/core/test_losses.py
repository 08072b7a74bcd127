"""Losses against their definitions: derivatives by differences, curvature by the inequality that defines it."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import pytest

from okl_core.losses import LOSSES, Loss, sigmoid
from okl_core.types import F64

CLIPS = [0.3, 1.0, 1.7, 3.0, 8.0]

ALL = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
CURVED = pytest.mark.parametrize(
    "loss", [LOSSES[n] for n in ("squared", "logistic", "squared-hinge")], ids=lambda x: x.name
)
EVERY_CLIP = pytest.mark.parametrize("C", CLIPS)


def truths(loss: Loss, C: float) -> list[float]:
    return [-1.0, 1.0] if loss.target == "binary" else np.linspace(-C, C, 21).tolist()


def grid(C: float, n: int = 201) -> F64:
    return np.linspace(-C, C, n)


def largest_weight(loss: Loss, b: float, y: float, C: float) -> float:
    """The largest w with l(a) >= l(b) + l'(b) (a - b) + (w / 2) (a - b)^2 for every a of a fine grid."""
    a = grid(C, 20_001)
    a = a[np.abs(a - b) > 1e-3 * C]
    gap = loss.values(a, np.full(len(a), y)) - loss.value(b, y) - loss.derivative(b, y) * (a - b)
    return float((2.0 * gap / (a - b) ** 2).min())


@ALL
def test_values_are_value(loss: Loss) -> None:
    a = np.linspace(-4.0, 4.0, 81)
    for y in truths(loss, 1.0):
        expected = [loss.value(b, y) for b in a.tolist()]
        np.testing.assert_allclose(loss.values(a, np.full(len(a), y)), expected, rtol=1e-14, atol=1e-300)


@ALL
def test_derivative_is_that_of_the_value(loss: Loss) -> None:
    step = 1e-5
    for y in truths(loss, 1.0):
        # Off the kink of the hinge, where the derivative is one of many.
        for a in np.linspace(-3.9, 4.0, 80).tolist():
            if abs(1.0 - y * a) > step or loss.name != "hinge":
                slope = (loss.value(a + step, y) - loss.value(a - step, y)) / (2.0 * step)
                assert loss.derivative(a, y) == pytest.approx(slope, rel=1e-6, abs=2e-5)


def test_the_hinge_has_no_derivative_at_its_kink() -> None:
    assert LOSSES["hinge"].derivative(1.0, 1.0) == 0.0
    assert LOSSES["hinge"].derivative(-1.0, -1.0) == 0.0


@EVERY_CLIP
@ALL
def test_lipschitz_is_the_largest_derivative(loss: Loss, C: float) -> None:
    found = max(abs(loss.derivative(a, y)) for y in truths(loss, C) for a in grid(C).tolist())
    assert found == pytest.approx(loss.lipschitz(C), rel=1e-12)


def smallest_gap(loss: Loss, sigma: float, C: float) -> float:
    """Of l(a) over its lower bound by sigma, relative to (l'(b) (a - b))^2, over a grid of a, b and y."""
    a, smallest = grid(C, 2001), math.inf
    for y in truths(loss, C):
        values = loss.values(a, np.full(len(a), y))
        for b in grid(C, 101).tolist():
            slope = loss.derivative(b, y) * (a - b)
            gap = values - loss.value(b, y) - slope - 0.5 * sigma * slope**2
            far = np.abs(slope) > 1e-3 * loss.lipschitz(C) * C
            smallest = min(smallest, float((gap[far] / slope[far] ** 2).min(initial=math.inf)))
    return smallest


@EVERY_CLIP
@CURVED
def test_curvature_is_the_largest_valid_constant(loss: Loss, C: float) -> None:
    sigma = loss.curvature(C)
    assert smallest_gap(loss, sigma, C) >= -1e-6 * sigma
    assert smallest_gap(loss, 1.01 * sigma, C) < -1e-3 * sigma


def test_the_hinge_has_no_curvature() -> None:
    assert LOSSES["hinge"].curvature(1.0) == 0.0
    assert LOSSES["hinge"].weight(0.3, 1.0, 1.0) == 0.0
    assert largest_weight(LOSSES["hinge"], 0.3, 1.0, 1.0) == pytest.approx(0.0, abs=1e-9)


@EVERY_CLIP
@CURVED
def test_weight_is_valid_at_the_point_played(loss: Loss, C: float) -> None:
    for y in truths(loss, C):
        for b in grid(C, 101).tolist():
            w = loss.weight(b, y, C)
            assert w >= 0.0
            assert w <= largest_weight(loss, b, y, C) * (1.0 + 1e-6) + 1e-9


@EVERY_CLIP
@pytest.mark.parametrize("name", ["squared", "squared-hinge"])
def test_weight_is_the_largest_valid_one(name: str, C: float) -> None:
    loss = LOSSES[name]
    for y in truths(loss, C):
        for b in grid(C, 101).tolist():
            assert loss.weight(b, y, C) == pytest.approx(largest_weight(loss, b, y, C), rel=2e-3, abs=2e-3 / C)


@EVERY_CLIP
def test_the_weight_of_the_squared_hinge_does_not_jump(C: float) -> None:
    loss, b = LOSSES["squared-hinge"], min(C, 1.0)
    assert loss.weight(b - 1e-12, 1.0, C) == pytest.approx(loss.weight(b, 1.0, C), abs=1e-9)


@ALL
def test_probability_is_that_of_the_positive_label(loss: Loss) -> None:
    if loss.name != "logistic":
        assert loss.probability(0.3) is None
        return
    assert loss.probability(0.0) == 0.5
    for a in (-3.0, 0.7, 30.0):
        p = cast(float, loss.probability(a))
        assert -math.log(p) == pytest.approx(loss.value(a, 1.0), rel=1e-12)
        assert p + cast(float, loss.probability(-a)) == pytest.approx(1.0)


@ALL
@pytest.mark.parametrize("a", [1e4, -1e4])
def test_nothing_overflows(loss: Loss, a: float) -> None:
    for y in truths(loss, 1.0):
        numbers = [loss.value(a, y), loss.derivative(a, y), loss.weight(a, y, 1.0), loss.curvature(1e4), sigmoid(a)]
        numbers += [
            loss.lipschitz(1e4),
            loss.probability(a) or 0.0,
            *loss.values(np.array([a]), np.array([y])).tolist(),
        ]
        assert all(math.isfinite(number) for number in numbers)
