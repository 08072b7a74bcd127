"""The parameters of a pool."""

from __future__ import annotations

from functools import cached_property
from typing import Self

from pydantic import Field, field_validator, model_validator

from okl_core.contract.learner import parse_spec
from okl_core.pool.aggregation import (
    Aggregation,
    AggregationName,
    ClassAggregation,
    MixedLoss,
    ValueAggregation,
)
from okl_core.pool.expert_specs import (
    MAX_EXPERTS,
    TAUGHT,
    ExpertSpec,
    Truth,
    count_of,
    default_experts,
    trivial_experts,
)
from okl_core.pool.experts import Experts
from okl_core.pool.resting import EVERY
from okl_core.types import MAX_CLASSES, Interval, LearnerConfig

LARGEST_LOG_ODDS = 300.0
"""Largest clip with logistic loss. Weights underflow near exp(-745); as losses stay far below 745, experts lost to underflow
do not matter."""


class PoolConfig(LearnerConfig):
    """Parameters of a pool, all optional."""

    truth: Truth = Field(
        default="labels",
        description="Type of the truths: labels -1 and 1, numbers in [-clip, clip], or classes 0 to K - 1.",
    )
    classes: int = Field(
        default=2,
        ge=2,
        le=MAX_CLASSES,
        description="K, the number of classes of the pool and its experts. In a session the default is the "
        "number of its labels.",
    )
    experts: list[ExpertSpec] | None = Field(
        default=None,
        min_length=1,
        fail_fast=True,
        description="The learners; by default kernel and linear ones of many length scales, with and without forgetting "
        "and lags. The trivial forecasters are always among them.",
    )
    aggregation: AggregationName = Field(
        default="aggregating", description="Vovk's Aggregating Algorithm, or exponential weights and the weighted mean."
    )
    loss: MixedLoss = Field(
        default="squared",
        description="The loss by which experts are weighted; logistic reads forecasts as log odds. "
        "Classes have the log-loss of their probabilities.",
    )
    clip: float = Field(
        default=1.0,
        ge=1e-50,
        le=1e50,
        description="C: forecasts are clipped to [-C, C]; with logistic loss these are log odds, and 1 is little.",
    )
    share: float = Field(
        default=0.001, ge=0.0, lt=1.0, description="Weight given back to all experts in each round; 0 never forgets."
    )
    resting: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="Experts that have lost nearly all weight play one in this many stretches of 64 rounds, more often at "
        "first; after an unusual stretch all experts play. 1: none rests. By default 16 with the default experts, some of "
        "which forget, else 1.",
    )

    @field_validator("experts", mode="before")
    @classmethod
    def _are_few(cls, value: object) -> object:
        """Limit the number of experts before any is validated, since validating many grids would take seconds."""
        count = sum(map(count_of, value)) if isinstance(value, list) else 0
        if count > MAX_EXPERTS:
            raise ValueError(f"these are {count} experts, with their grids; a pool has at most {MAX_EXPERTS}")
        return value

    @model_validator(mode="before")
    @classmethod
    def _of_probabilities(cls, value: object) -> object:
        """Set the loss of a pool of classes, which may be left out."""
        return {"loss": "logistic"} | value if isinstance(value, dict) and value.get("truth") == "classes" else value

    @model_validator(mode="after")
    def _loss_fits(self) -> Self:
        if self.truth != "classes" and self.classes != 2:
            raise ValueError(f'{self.classes} classes, but the truths are {self.truth}: set `truth` to "classes"')
        if self.truth == "classes" and (self.loss != "logistic" or self.clip != 1.0):
            raise ValueError(
                "probabilities of classes are weighed by their log-loss, and not clipped: leave `loss` and `clip` out"
            )
        if self.truth == "numbers" and self.loss == "logistic":
            raise ValueError("logistic loss is for labels; with numbers the loss is squared")
        if self.truth == "labels" and self.loss == "squared" and self.clip < 1.0:
            raise ValueError(f"clip is {self.clip}; with labels and squared loss it must be at least 1")
        if self.loss == "logistic" and self.clip > LARGEST_LOG_ODDS:
            raise ValueError(f"clip is {self.clip}; with logistic loss it must be at most {LARGEST_LOG_ODDS:g}")
        return self

    @model_validator(mode="after")
    def _experts_fit(self) -> Self:
        for i, expert in enumerate(self.all_experts()):
            _, learner, config = parse_spec({"kind": expert.kind, "config": expert.config})
            target = learner.target(config)
            if target not in TAUGHT[self.truth]:
                raise ValueError(f"expert {i}, {expert.kind}, does not learn {self.truth}")
            low, high = learner.truth_range(config)
            if target == "class" and (low, high) != self.truth_range:
                mismatch = f"of {high + 1.0:.0f} classes, in a pool of {self.classes}: leave its `classes` out"
                raise ValueError(f"expert {i}, {expert.kind}, is {mismatch}")
            if target != "binary" and not (low <= self.truth_range[0] and self.truth_range[1] <= high):
                raise ValueError(
                    f"expert {i}, {expert.kind}, takes truths from {low} to {high}, not from {self.truth_range[0]} to "
                    f"{self.truth_range[1]}: widen its `clip` or `truth_range`"
                )
        return self

    @property
    def cautions(self) -> tuple[str, ...]:
        """The cautions of its experts, without duplicates."""
        configs = [parse_spec({"kind": expert.kind, "config": expert.config})[2] for expert in self.all_experts()]
        return tuple(dict.fromkeys(caution for config in configs for caution in config.cautions))

    @property
    def rests(self) -> int:
        """`resting`, or its default."""
        return self.resting or (EVERY if self.experts is None else 1)

    @property
    def truth_range(self) -> Interval:
        if self.truth == "classes":
            return 0.0, self.classes - 1.0
        largest = self.clip if self.truth == "numbers" else 1.0
        return -largest, largest

    @property
    def dim(self) -> int | None:
        return next((expert.dim for expert in self.all_experts() if expert.dim is not None), None)

    def all_experts(self) -> list[ExpertSpec]:
        chosen = default_experts(self.truth, self.clip) if self.experts is None else self.experts
        trivial, expanded = trivial_experts(self.truth), [expert for grid in chosen for expert in grid.expand()]
        if self.truth == "classes":
            trivial, expanded = ([expert.of_classes(self.classes) for expert in part] for part in (trivial, expanded))
        return expanded + [expert for expert in trivial if expert not in expanded]

    @cached_property
    def team(self) -> Experts:
        """All experts at work."""
        return Experts(self.all_experts(), self.weighing.shape)

    @cached_property
    def weighing(self) -> Aggregation:
        if self.truth == "classes":
            return ClassAggregation(self.classes, self.share)
        return ValueAggregation(self.loss, self.aggregation, self.clip, self.share, self.truth == "labels")
