r"""The regressions of one stream: kernel regression with and without forgetting, linear, nearest-neighbour, and a series.

All of them regress the truths, one column per class, on the input. Computations are shared: one dictionary serves both
kernel posteriors, and one posterior serves all classes.

| name       | regressors                                                                       |
|------------|----------------------------------------------------------------------------------|
| kernel     | 1, the inputs if they are few, and the coordinates of the dictionary             |
| fading     | the same, but the weight of a past round halves every `half_life` rounds         |
| neighbours | the last `window` rounds                                                         |
| linear     | 1 and the inputs, only for at most LINEAR inputs                                 |
| series     | 1, the inputs and the last truths, only for numbers and at most LINEAR inputs    |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from okl_core.automatic.neighbourhood import Neighbourhood
from okl_core.automatic.relevance_kernel import CENTRE, RelevanceKernel
from okl_core.automatic.series import Series
from okl_core.automatic.shared_posterior import SharedPosterior, SharedProjection
from okl_core.contract.rng import RoundRng
from okl_core.second_order.embedding import Embedding, EmbeddingBlock, EmbeddingState, Growth, KorsDictionary
from okl_core.second_order.forgetting import HalfLife
from okl_core.types import F64, StatePart

LIMIT = 8.0
"""Distance beyond [0, 1] at which input coordinates are clipped."""

INTERCEPT = 10.0
"""The constant feature, large so that its coefficient is hardly shrunk."""

LINEAR = 1000
"""Most inputs for which there are linear regressions, whose posterior is a matrix of that size."""

BLOCK = 64
"""Most rounds learned at once."""

DICTIONARY = KorsDictionary(regularization=1.0, oversampling=1.0)


@final
@dataclass(slots=True)
class RegressorsState(StatePart):
    """The states of all regressions, and the embedding given by their dictionary."""

    embedding: EmbeddingState
    kernel: SharedPosterior
    fading: SharedPosterior
    neighbours: Neighbourhood
    linear: SharedPosterior | None
    series: Series | None


@final
class RegressorsRound(NamedTuple):
    """The projections of one input on the state; F holds the forecasts, shape (E, k)."""

    x: F64
    F: F64
    phi: F64
    growth: Growth | None
    kernel: SharedProjection
    fading: SharedProjection
    linear: SharedProjection | None
    series: SharedProjection | None

    def with_truths(self, count: int) -> RegressorsRound:
        """The same round with `count` further truths that were 0 in every round so far."""
        linear = None if self.linear is None else self.linear.with_truths(count)
        return self._replace(
            kernel=self.kernel.with_truths(count), fading=self.fading.with_truths(count), linear=linear
        )


@final
class Regressors(NamedTuple):
    """All regressions for one config; with `is_series`, truths are numbers, so that there may be a series."""

    kernel: RelevanceKernel
    budget: int
    half_life: int
    window: int
    is_series: bool

    @property
    def embedding(self) -> Embedding:
        return Embedding(self.kernel, DICTIONARY, self.budget)

    @property
    def forgetting(self) -> HalfLife:
        return HalfLife(self.half_life)

    def names(self, dim: int) -> tuple[str, ...]:
        few = dim <= LINEAR
        return (
            "kernel",
            "fading",
            "neighbours",
            *(("linear",) if few else ()),
            *(("series",) if few and self.is_series else ()),
        )

    def init(self, dim: int, truths: int) -> RegressorsState:
        few = dim <= LINEAR
        size = 1 + (dim if self.kernel.is_explicit else 0)
        return RegressorsState(
            self.embedding.init(dim),
            SharedPosterior(size, truths),
            SharedPosterior(size, truths),
            Neighbourhood(self.window, dim, truths),
            SharedPosterior(1 + dim, truths) if few else None,
            Series.empty(1 + dim) if few and self.is_series else None,
        )

    def predict(self, state: RegressorsState, x: F64) -> F64:
        """The forecasts F for x, shape (E, k)."""
        x = np.clip(x, -LIMIT, 1.0 + LIMIT)
        return self._project(state, x, self.embedding.locate(state.embedding, x).phi, None).F

    def play(self, state: RegressorsState, t: int, x: F64, rng: RoundRng) -> RegressorsRound:
        """Play round t; changes nothing."""
        x = np.clip(x, -LIMIT, 1.0 + LIMIT)
        located = self.embedding.locate(state.embedding, x)
        return self._project(state, x, located.phi, self.embedding.choose(state.embedding, t, located, rng))

    def _project(self, state: RegressorsState, x: F64, phi: F64, growth: Growth | None) -> RegressorsRound:
        linear = self._linear(x[None, :])[:, 0]
        whole = np.concatenate((linear if self.kernel.is_explicit else linear[:1], phi))
        kernel, fading = state.kernel.project(whole), state.fading.project(whole)
        forecasts = [kernel.m, fading.m, state.neighbours.forecast(self._scaled(x))]
        by_line = by_series = None
        if state.linear is not None:
            by_line = state.linear.project(linear)
            forecasts.append(by_line.m)
        if state.series is not None:
            value, by_series = state.series.project(linear)
            forecasts.append(np.array([value]))
        return RegressorsRound(x, np.array(forecasts), phi, growth, kernel, fading, by_line, by_series)

    def learn(self, state: RegressorsState, t: int, played: RegressorsRound, y: F64) -> None:
        """Learn the truths y, shape (k,), of a played round t."""
        state.kernel.absorb(played.kernel, y)
        state.fading.absorb(played.fading, y)
        state.neighbours.remember(self._scaled(played.x)[None, :], y[None, :])
        if state.linear is not None and played.linear is not None:
            state.linear.absorb(played.linear, y)
        if state.series is not None and played.series is not None:
            state.series.absorb(played.series, float(y[0]))
        if played.growth is not None:
            self.embedding.grow(state.embedding, played.x, played.phi, played.growth)
            state.kernel.grow(1)
            state.fading.grow(1)
        self._forget(state, t)

    def room(self, t: int, most: int) -> int:
        """The number of rounds after round t that may be learned at once."""
        return self.forgetting.room(t, most) if most < BLOCK else self.forgetting.room(t, BLOCK)

    def learn_block(self, state: RegressorsState, t: int, X: F64, Y: F64, rng: RoundRng) -> F64:
        """Learn n rounds from round t on, n at most `room`; the forecasts, (n, E, k), are each made before their round."""
        X = np.clip(X, -LIMIT, 1.0 + LIMIT)
        inputs = EmbeddingBlock(self.embedding, state.embedding, t, X)
        added: list[F64] = []
        for j in range(len(X)):
            rng.at(t + j)
            coordinate = inputs.choose(j, rng)
            if coordinate is not None:
                added.append(coordinate)
        linear = self._linear(X)
        Phi = np.concatenate(
            (linear if self.kernel.is_explicit else linear[:1], inputs.Phi, *(c[None, :] for c in added))
        )
        state.kernel.grow(len(added))
        state.fading.grow(len(added))
        forecasts = [state.kernel.learn(Phi, Y), state.fading.learn(Phi, Y), state.neighbours.learn(self._scaled(X), Y)]
        if state.linear is not None:
            forecasts.append(state.linear.learn(linear, Y))
        if state.series is not None:
            forecasts.append(state.series.learn(linear, Y[:, 0])[:, None])
        inputs.settle()
        self._forget(state, t + len(X) - 1)
        return np.stack(forecasts, axis=1)

    def add_truths(self, state: RegressorsState, count: int) -> None:
        """Add truths that were 0 in every round so far."""
        state.kernel.add_truths(count)
        state.fading.add_truths(count)
        state.neighbours.add_truths(count)
        if state.linear is not None:
            state.linear.add_truths(count)

    def initial_bytes(self, dim: int) -> int:
        few = dim <= LINEAR
        size = 1 + (dim if self.kernel.is_explicit else 0)
        return 8 * (2 * size * size + ((1 + dim) ** 2 * (1 + self.is_series) if few else 0))

    def conditioning(self, state: RegressorsState, t: int) -> float:
        """The sum of the conditions of the embedding and of A, whose eigenvalues are in [1, 1 + sum |phi|^2]. O(|I|)."""
        kappa = float(self.kernel.diag(np.full((1, len(self.kernel.smooth)), CENTRE))[0]) + INTERCEPT**2
        return self.embedding.condition(state.embedding) + 1.0 + t * kappa

    def _linear(self, X: F64) -> F64:
        """The features of linear functions, shape (1 + d, n)."""
        features = np.empty((1 + X.shape[1], len(X)))
        features[0] = INTERCEPT
        np.multiply((X - CENTRE).T, math.sqrt(self.kernel.linear), out=features[1:])
        return features

    def _scaled(self, x: F64) -> F64:
        return (x - CENTRE) * self.kernel.roots

    def _forget(self, state: RegressorsState, t: int) -> None:
        factor = self.forgetting.factor(t)
        if factor is not None:
            state.fading.discount(factor)
