"""The parameters of the packing that learns its metric."""

from __future__ import annotations

import functools
from typing import Annotated, Literal

from pydantic import Field

from okl_core.learners.metric_packing.phases import last_phase_end
from okl_core.metrics.gradient_outer_product import BANDWIDTH, DIFFERENCE_STEP
from okl_core.packing.packing_config import PackingConfig

EXTREME = 1e100
"""The largest c_eps and c_tau, and one over the smallest: slopes and their squares stay finite."""

MOST_STORED = 2**53
"""Larger numbers of rounds are not all floating-point numbers."""


class MetricPackingConfig(PackingConfig):
    """Parameters of the packing that learns its metric: of its estimate, its phases and the work after each."""

    bandwidth: float = Field(
        default=BANDWIDTH, ge=1.0 / EXTREME, le=EXTREME, description="c_eps: eps = c_eps n^(-1 / (2 (d + 1)))."
    )
    difference_step: float = Field(
        default=DIFFERENCE_STEP, ge=1.0 / EXTREME, le=EXTREME, description="c_tau: tau = c_tau eps^(1/4)."
    )
    min_count: Annotated[int, Field(ge=1)] | Literal["published"] = Field(
        default=1,
        description="Inputs that two balls of radius eps / 2 must hold for a slope to count. published: 2 d ln(2 n), which "
        "from d = 5 on leaves none in thousands of rounds.",
    )
    metric_regularization: float = Field(
        default=1.0,
        gt=0.0,
        description="alpha: n^-alpha of the largest eigenvalue is added to all of them. Below 1 the packing cannot get flat.",
    )
    evaluation_points: int = Field(default=128, ge=1, le=2048, description="Inputs at most at which slopes are taken.")
    refeed: bool = Field(
        default=True, description="Play all rounds so far to a new packing. false: it starts empty, as published."
    )
    memory: int | None = Field(
        default=8192,
        ge=2,
        le=MOST_STORED,
        description="Rounds that may be stored. The last phase that fits into them teaches the final metric, after which "
        "none are stored. null: no end.",
    )
    spread: bool = Field(
        default=True,
        description="Spread the work at the end of a phase over an eighth of the next, or 3/5 with more than 16 inputs. "
        "false: all in its last round, as published.",
    )

    @functools.cached_property
    def last_phase_end(self) -> float:
        """The last round at whose end a metric is learned; infinite if `memory` is."""
        return last_phase_end(self.memory)
