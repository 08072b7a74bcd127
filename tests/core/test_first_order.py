"""Step sizes of the first-order learners, and what a config may say of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from okl_core.contract.rng import RoundRng
from okl_core.errors import DivergedError
from okl_core.first_order.steps import FirstOrderConfig, folded, gradient_step, into_ball, open_horizon


def recording() -> RoundRng:
    rng = RoundRng(0)
    rng.begin()
    return rng


def test_step_sizes() -> None:
    assert [FirstOrderConfig(step_size=0.3).eta(t) for t in (1, 50)] == [0.3, 0.3]
    falling = FirstOrderConfig(step_size="inverse-sqrt", step_factor=6.0)
    assert [falling.eta(t) for t in (1, 4, 9)] == [6.0, 3.0, 2.0]
    known = FirstOrderConfig(step_size="horizon", step_factor=100.0, horizon=19_020)
    assert [known.eta(t) for t in (1, 30_000)] == [100.0 / math.sqrt(19_020)] * 2
    doubling = FirstOrderConfig(step_size="horizon", step_factor=8.0)
    powers = [1, 2, 4, 4, 8, 8, 8, 8, 16]
    assert [doubling.eta(t) for t in range(1, 10)] == [8.0 / math.sqrt(T) for T in powers]


def test_a_horizon_that_nobody_knows_is_the_next_power_of_two() -> None:
    assert [open_horizon(t) for t in (1, 2, 3, 1024, 1025)] == [1, 2, 4, 1024, 2048]
    assert [open_horizon(t, first=16) for t in (1, 16, 17)] == [16, 16, 32]


def test_a_projection_to_the_ball_shrinks_only_what_is_outside() -> None:
    assert into_ball(36.0, 3.0) == (0.5, 9.0)
    assert into_ball(9.0, 3.0) == (1.0, 9.0)
    assert into_ball(-1e-20, 3.0) == (1.0, 0.0)
    assert into_ball(1e300, math.inf) == (1.0, 1e300)
    assert math.isnan(into_ball(math.nan, 3.0)[1])


def test_a_scale_is_folded_into_the_coefficients_long_before_it_underflows() -> None:
    scale, total = 1.0, 1.0
    for _ in range(1000):
        scale, factor = folded(0.1 * scale)
        total *= factor
        assert 1e-9 <= scale <= 1.0
        assert factor == 1.0 or (1e-10 < factor < 1e-9 and scale == 1.0)
    assert total == 0.0
    assert folded(0.5) == (0.5, 1.0)


@pytest.mark.parametrize(
    "config",
    [
        {"step_size": 0.1, "step_factor": 2.0},
        {"step_size": 0.1, "horizon": 10},
        {"horizon": 10},
        {"step_size": 0.0},
        {"step_size": "inverse"},
    ],
)
def test_settings_that_would_be_ignored_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        FirstOrderConfig.model_validate(config)


def test_a_config_survives_its_json() -> None:
    for config in (FirstOrderConfig(), FirstOrderConfig(step_size=0.5)):
        assert FirstOrderConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(("loss", "m"), [("hinge", 1.0), ("squared-hinge", 1.0), ("squared", 0.7), ("squared", 5.0)])
def test_rounding_at_the_kink_is_no_loss(loss: str, m: float) -> None:
    config = FirstOrderConfig.model_validate({"loss": loss})
    y = min(m, 1.0)
    for nearby in (m, m * (1.0 - 1e-15), m * (1.0 + 1e-15)):
        step = gradient_step(config, 1, y, nearby, 1.0, recording())
        assert (step.has_loss, step.weight) == (False, 0.0)
    assert gradient_step(config, 1, y, y - 1e-6, 1.0, recording()).has_loss


def test_the_recorded_outcome_counts() -> None:
    config, rng = FirstOrderConfig(step_size=0.5), RoundRng(0)
    for outcome, weight in ((b"\1", 0.5), (b"\0", 0.0)):
        rng.begin(outcome)
        for m in (0.999, 1.001):
            rng.begin(outcome)
            assert gradient_step(config, 1, 1.0, m, 1.0, rng).weight == weight


@pytest.mark.parametrize("m", [1e151, -math.inf, math.nan])
def test_values_that_overflow_are_refused(m: float) -> None:
    with pytest.raises(DivergedError):
        gradient_step(FirstOrderConfig(), 1, 1.0, m, 1.0, recording())
