"""Losses keep their contract, and their constants are the largest that it allows."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import pytest

from okl_core.contract.loss_checks import CLIPS, LOSS_CHECKS, check_loss
from okl_core.losses import LOSSES, Loss, log_loss
from okl_core.types import F64

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


@pytest.mark.parametrize("name", ["squared", "logistic", "hinge", "squared-hinge"])
def test_the_contract(name: str) -> None:
    check_loss(LOSSES[name])


def test_the_contract_has_every_check_once() -> None:
    assert len({check.__name__ for check in LOSS_CHECKS}) == len(LOSS_CHECKS)


def test_what_is_said_of_the_derivatives() -> None:
    assert {name for name in LOSSES if LOSSES[name].kink} == {"hinge"}
    assert {name for name in LOSSES if not LOSSES[name].has_flat_part} == {"logistic"}


def test_the_hinge_takes_the_side_that_is_recorded() -> None:
    hinge = LOSSES["hinge"]
    for y in (-1.0, 1.0):
        assert hinge.derivative(y, y) == 0.0
        for a in (0.5 * y, y, 2.0 * y):
            assert (hinge.side(a, y, True), hinge.side(a, y, False)) == (-y, 0.0)


@EVERY_CLIP
@pytest.mark.parametrize("name", ["squared", "logistic", "squared-hinge"])
def test_curvature_is_the_largest_valid_constant(name: str, C: float) -> None:
    loss, a, smallest = LOSSES[name], grid(C, 2001), math.inf
    for y in truths(loss, C):
        values = loss.values(a, np.full(len(a), y))
        for b in grid(C, 21).tolist():
            slope = loss.derivative(b, y) * (a - b)
            far = np.abs(slope) > 1e-3 * loss.lipschitz(C) * C
            gap = (values - loss.value(b, y) - slope)[far]
            smallest = min(smallest, float((gap / slope[far] ** 2).min(initial=math.inf)))
    assert 2.0 * smallest == pytest.approx(loss.curvature(C), rel=1e-2)


@EVERY_CLIP
@pytest.mark.parametrize("name", ["squared", "squared-hinge"])
def test_weight_is_the_largest_valid_one(name: str, C: float) -> None:
    loss = LOSSES[name]
    for y in truths(loss, C):
        for b in grid(C, 21).tolist():
            assert loss.weight(b, y, C) == pytest.approx(largest_weight(loss, b, y, C), rel=2e-3, abs=2e-3 / C)


def test_the_hinge_has_no_curvature() -> None:
    assert (LOSSES["hinge"].curvature(1.0), LOSSES["hinge"].weight(0.3, 1.0, 1.0)) == (0.0, 0.0)
    assert largest_weight(LOSSES["hinge"], 0.3, 1.0, 1.0) == pytest.approx(0.0, abs=1e-9)


@EVERY_CLIP
def test_the_weight_of_the_squared_hinge_does_not_jump(C: float) -> None:
    loss, b = LOSSES["squared-hinge"], min(C, 1.0)
    assert loss.weight(b - 1e-12, 1.0, C) == pytest.approx(loss.weight(b, 1.0, C), abs=1e-9)


@EVERY_CLIP
@pytest.mark.parametrize("name", LOSSES)
def test_lipschitz_is_the_largest_derivative(name: str, C: float) -> None:
    loss = LOSSES[name]
    found = max(abs(loss.derivative(a, y)) for y in truths(loss, C) for a in grid(C).tolist())
    assert found == pytest.approx(loss.lipschitz(C), rel=1e-12)


def test_the_logistic_probability_is_that_of_the_positive_label() -> None:
    loss = LOSSES["logistic"]
    assert loss.probability(0.0) == 0.5
    for a in (-3.0, 0.7, 30.0):
        p = cast(float, loss.probability(a))
        assert -math.log(p) == pytest.approx(loss.value(a, 1.0), rel=1e-12)
        assert p + cast(float, loss.probability(-a)) == pytest.approx(1.0)
    assert [name for name in LOSSES if LOSSES[name].probability(0.3) is not None] == ["logistic"]


def test_the_loss_of_certainty_has_no_sign() -> None:
    assert repr(log_loss(1.0)) == "0.0"
