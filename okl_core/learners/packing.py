"""Ellipsoid packing: a mean of the truths in each ball of a metric, for any smooth function and any stream; or a fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self, final

import numpy as np
from pydantic import Field, model_validator

from okl_core.contract.learner import Learner, register
from okl_core.contract.rng import RoundRng
from okl_core.errors import ConfigError, NotPositiveDefiniteError
from okl_core.losses import LOSSES, Loss
from okl_core.metrics.mahalanobis import Metric, symmetric
from okl_core.packing.balls import Packing, PackingConfig, Placement, balls_bound
from okl_core.types import F64, BlockInfo, Forecast, Interval, LearnerState, Round

Diagonal = Annotated[list[float], Field(min_length=1, fail_fast=True)]
Matrix = Annotated[list[Diagonal], Field(min_length=1, fail_fast=True)]


class FixedPackingConfig(PackingConfig):
    """Parameters of the packing with a fixed metric."""

    metric: Literal["identity"] | Diagonal | Matrix = Field(
        default="identity",
        description="M: the identity, the d entries of a diagonal matrix, or a symmetric d x d matrix; positive definite. "
        "What it is multiplied by does not matter.",
    )

    @property
    def dim(self) -> int | None:
        return None if self.metric == "identity" else len(self.metric)

    @model_validator(mode="after")
    def _check_metric(self) -> Self:
        if self.metric == "identity":
            return self
        try:
            Metric.of(_matrix(self.metric))
        except NotPositiveDefiniteError as error:
            raise ValueError(str(error)) from error
        return self


@dataclass(slots=True)
class PackingState(LearnerState):
    """The packing and the cumulative loss."""

    packing: Packing
    loss: float


@dataclass(slots=True)
class PackingRound(Round):
    placement: Placement


@final
@register
class EllipsoidPacking(Learner[FixedPackingConfig, PackingState, PackingRound]):
    r"""Means over balls of a fixed metric that shrink with time: regression on any smooth function, with a guarantee.

    With the symbols of `packing.balls`, s the nearest of the centres, eps_t = t^(-1 / (1 + rho_t)),

        value = the mean of T_s, or the middle of `truth_range` if T_s is empty,
        |x_t - x_s|_M <= eps_t:  t joins T_s;  otherwise x_t becomes a centre, and T = {t} (or {}).

    With `estimate` "linear" the value is that of a linear function of z_t, fitted to T_s (`packing.local_linear`) and cut
    off at the ends of `truth_range`.

    Time of a round: that of finding the nearest centre, see `linalg.nearest`; with few inputs it hardly grows with the
    stream, with more it is O(|S| d). Memory O(|S| d), |S| of the order T^(rho / (1 + rho)). Linear fits add O(d^2) to the
    time, and O(|S| d^2) to the memory.

    Notes
    -----
    For truths in [0, 1] and inputs in the unit ball the regret against any differentiable f with values in [0, 1] is at most

        (8 ln(eT) + 1) |S| + 4 sqrt(sum_i |grad_{u_i} f|^2 / lambda_i) T^(rho / (1 + rho)),
        |S| <= (8 sqrt 2)^kappa sqrt(lambda_1 ... lambda_kappa) T^(kappa / (1 + rho)),

    rho = rho_T, kappa = kappa(rho, T), u_i the eigenvectors of M, |grad_{u_i} f| the largest slope of f along u_i:
    `packing.regret_bound`. So M should be small where f hardly changes. The first term is `bound_balls`; the second
    is not known. For another range of truths the first is multiplied by the square of its length, the second by the length.
    Inputs outside the ball are taken, too, and open more balls. All this is about means: of linear fits nothing is claimed.

    Against the paper: algorithm 1 prints S <- S u {s} where the text says that x_t becomes a centre. It prints an empty list
    for it, where the proof counts t itself; so does this, and errs several times less, unless `include_center` is false.

    References: [kuzborskij2017] algorithm 1, theorem 1 with the constants of its proof.

    Examples
    --------
    >>> import numpy as np
    >>> from okl_core import create
    >>> learner = create({"kind": "packing"}, dim=1)
    >>> learner.update(np.array([0.0]), 1.0).loss
    0.25
    >>> learner.predict(np.array([0.2])).value
    1.0
    """

    kind: ClassVar[str] = "packing"
    references: ClassVar[tuple[str, ...]] = ("kuzborskij2017",)
    config_type = FixedPackingConfig
    state_type = PackingState

    def loss(self, config: FixedPackingConfig) -> Loss:
        return LOSSES["squared"]

    def truth_range(self, config: FixedPackingConfig) -> Interval:
        return config.interval

    def input_radius(self, config: FixedPackingConfig) -> float | None:
        return 1.0

    def initial_bytes(self, config: FixedPackingConfig, dim: int) -> int:
        # What a warm-up would find out at its end only.
        config.check_inputs(dim)
        return 0

    def init(self, config: FixedPackingConfig, dim: int) -> PackingState:
        if config.metric == "identity":
            metric = Metric.identity(dim)
        elif len(config.metric) == dim:
            metric = Metric.of(_matrix(config.metric))
        else:
            message = f"a metric for {len(config.metric)} inputs, the learner has {dim}"
            raise ConfigError(f"packing: {message}", [(("config", "metric"), message)])
        return PackingState(0, Packing.of(config, metric), loss=0.0)

    def unpack(self, config: FixedPackingConfig, arrays: Mapping[str, F64]) -> PackingState:
        state = super().unpack(config, arrays)
        state.packing.require_estimate(config)
        return state

    def predict(self, config: FixedPackingConfig, state: PackingState, x: F64) -> Forecast:
        return Forecast(state.packing.predict(config, x))

    def play(self, config: FixedPackingConfig, state: PackingState, x: F64, y: float, rng: RoundRng) -> PackingRound:
        placement = state.packing.place(x, rng)
        value = state.packing.value(config, placement.centre, placement.z)
        loss = self.loss(config).value(value, y)
        return PackingRound(state.t + 1, x, y, Forecast(value), loss, rng.choices(), placement)

    def learn(self, config: FixedPackingConfig, state: PackingState, played: PackingRound) -> None:
        state.t += 1
        state.packing.absorb(config, played.placement, played.y)
        state.loss += played.loss

    def run(self, config: FixedPackingConfig, state: PackingState, X: F64, y: F64, rng: RoundRng) -> BlockInfo:
        values = np.array(state.packing.run(config, X, y, rng, state.t + 1))
        losses = self.loss(config).values(values, y)
        state.t += len(y)
        state.loss = sum(losses.tolist(), state.loss)
        return BlockInfo(state.t, values, losses, None, rng.finish())

    def describe(self, config: FixedPackingConfig, state: PackingState) -> dict[str, float]:
        packing = state.packing
        low, high = config.interval
        bound = {"bound_balls": (high - low) ** 2 * balls_bound(state.t, len(packing))}
        return {
            "t": state.t,
            "dictionary": len(packing),
            "bytes": packing.nbytes,
            "effective_rank": packing.rank,
            "radius": packing.radius,
            "loss": state.loss,
        } | (bound if config.estimate == "mean" else {})


def _matrix(metric: list[float] | list[list[float]]) -> F64:
    """A diagonal, shape (d,), or a matrix, shape (d, d). Raises NotPositiveDefiniteError if that is not symmetric."""
    rows = [row for row in metric if isinstance(row, list)]
    return symmetric(rows) if rows else np.array(metric, dtype=np.float64)
