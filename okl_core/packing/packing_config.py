"""The parameters that `packing` and `metric-packing` share."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from okl_core.contract.lags import LARGEST_TRUTH
from okl_core.errors import ConfigError
from okl_core.types import Interval, LearnerConfig

SMALLEST_SLOPE_REGULARIZATION = 1e-12
"""Below this, rounding would decide the slope in directions that the rounds of a ball do not determine."""

MOST_LINEAR = 100
"""Maximum number of inputs for linear fits: each centre keeps some d^2 numbers, and hardly any ball has so many rounds."""


class PackingConfig(LearnerConfig):
    """The range of the truths, and the kind of forecast that a ball makes."""

    include_center: bool = Field(
        default=True,
        description="Whether the round that opens a ball counts in it: the proof assumes so, the printed algorithm does not. "
        "Counting it helps.",
    )
    truth_range: list[float] = Field(
        default=[0.0, 1.0],
        min_length=2,
        max_length=2,
        description="[low, high]: range of the truths. Its middle is the forecast where nothing is known.",
    )
    estimate: Literal["mean", "linear"] = Field(
        default="mean",
        description="What a ball forecasts: the mean of its truths, as published, or a linear function fitted to them, which "
        "errs less but has no guarantee.",
    )
    slope_regularization: float = Field(
        default=0.01,
        ge=SMALLEST_SLOPE_REGULARIZATION,
        description="lambda: weight of the squared slope, measured in the metric, beside the squared errors of a linear fit.",
    )

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        low, high = self.truth_range
        if not -LARGEST_TRUTH <= low < high <= LARGEST_TRUTH:
            raise ValueError(f"truth_range is [low, high] with low below high, both within +-{LARGEST_TRUTH:g}")
        return self

    @property
    def interval(self) -> Interval:
        """`truth_range` as a pair."""
        low, high = self.truth_range
        return low, high

    @property
    def middle(self) -> float:
        """The forecast of a ball without rounds."""
        low, high = self.truth_range
        return 0.5 * (low + high)

    def check_inputs(self, dim: int) -> None:
        """Raise ConfigError if the estimate does not support so many inputs."""
        if self.estimate == "linear" and dim > MOST_LINEAR:
            message = f"linear fits are for {MOST_LINEAR} inputs at most, not for {dim}: take means"
            raise ConfigError(f"estimate: {message}", [(("config", "estimate"), message)])
