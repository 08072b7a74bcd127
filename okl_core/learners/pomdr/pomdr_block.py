"""A block of POMDR rounds, played from one matrix of kernel values.

The equations are those of `pomdr_round`. K has a row for every point that the rounds may need: first the window, then S,
then the inputs of the block. When an input joins S, its row is copied to the others of S, so that they stay together.
`margins` is f' / scale at the inputs of the block; a step adds weight u to it. The points, the window and the ring of the
state change once, at the end of the block.
"""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import daxpy  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.rng import RoundRng
from okl_core.learners.pomdr.pomdr_round import FactorRow, PomdrView, absorb, learning_rate, mirror_step, row_of
from okl_core.learners.pomdr.pomdr_state import POMD, PomdrConfig, PomdrState
from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64


class PomdrBlock:
    """The next n rounds of a state; X has shape (n, d)."""

    def __init__(self, config: PomdrConfig, state: PomdrState, X: F64, y: F64, kappas: F64) -> None:
        M, n, s = config.window, len(y), len(state.coefficients)
        self.config, self.state, self.X = config, state, X
        self.half = config.budget // 2
        self.y, self.kappas = y.tolist(), kappas.tolist()
        self.tops = np.maximum.accumulate(np.maximum(kappas, state.kappa)).tolist()
        """D in each round."""
        # A copy, which the state takes over at the end of the block.
        self.points = points = copy.deepcopy(state.points)
        if state.t == 0:
            points.extend(np.tile(X[0], (M, 1)))
        self.alone = copy.deepcopy(points) if state.phase == POMD else points
        """In phase 1 the points as a round alone finds them, but for the window: they give the rows that L grows by."""
        by_age = (state.t + np.arange(M)) % M
        self.past = M if state.phase == POMD else 0
        """Columns of K before those of the block. In phase 1 the window's inputs have some."""
        inputs = np.vstack((points.coordinates()[by_age], X)) if self.past else X
        points.extend(X)
        K = config.kernel.block(points, inputs)
        self.K_S, self.K_new = K[M:], K[M + s :]
        """Rows of the points of S, of which in phase 2 only the first B/2 are kept up; rows of the block's inputs."""
        self.kept = s
        self.stored: list[int] = []
        """S: so many points of before the block, and inputs of the block, by their indices among the points."""
        self.first = M + s
        """Index of the block's first input."""
        self.stream = np.concatenate((by_age, self.first + np.arange(n)))
        """Indices of the points of the window, oldest first, and of the block: entry i begins the window of round i."""
        self.labels = np.concatenate((state.labels[by_age], y))
        self.g = self._window_means(K).tolist()
        self.margins: F64 = state.coefficients.view @ self.K_S[:s, self.past :]
        self.i = 0

    def _window_means(self, K: F64) -> F64:
        """g_t(x_t) of each round, (n,)."""
        M, rounds = self.config.window, np.arange(len(self.y))
        window = rounds[:, None] + np.arange(M)
        band = K[self.stream[window], self.past + rounds[:, None]]
        return np.einsum("ij,ij->i", self.labels[window], band) / np.clip(self.state.t + rounds, 1, M)

    def run(self, rng: RoundRng) -> list[float]:
        """Learn the rounds and return the forecasts. If a round raises an error, those before it are learned."""
        values: list[float] = []
        try:
            self._play(values, rng)
        finally:
            self._settle(len(values))
        return values

    def _play(self, values: list[float], rng: RoundRng) -> None:
        """Play the rounds and append their forecasts to `values`."""
        config, state, y, g, tops = self.config, self.state, self.y, self.g, self.tops
        D = tops[0]
        rate = learning_rate(config, state, D)
        for i in range(len(y)):
            rng.at(state.t + 1)
            if tops[i] > D:
                D = tops[i]
                rate = learning_rate(config, state, D)
            prime = state.scale * self.margins.item(i)
            # Line 4, eq. (2): f_t = f' + lambda_t g_t
            value = prime + rate * g[i]
            if rng.decide(y[i] * value < 1.0):
                self._step(i, rate, prime, rng)
                rate = learning_rate(config, state, D)
            state.t += 1
            values.append(value)

    def _step(self, i: int, rate: float, prime: float, rng: RoundRng) -> None:
        """Take the step of round i, which has a loss."""
        state, size, past, half = self.state, self.kept + len(self.stored), self.past, self.half
        # A copy, since a column is slow to read more than once.
        k = self.K_S[: size if state.phase == POMD else half, past + i].copy()
        self.i = i
        view = PomdrView(self.y[i], rate, self.kappas[i], self.tops[i], prime, self.g[i], k)
        step = mirror_step(self.config, state, view, self._guess_product, self._kept_points, rng)
        if step.row is not None:
            step = step._replace(row=self._row_alone(i))
        weight, beta = step.weight / state.scale, step.beta
        factor = absorb(self.config, state, step)
        if step.removal is not None:
            del self.stored[max(0, half - self.kept) :]
            self.kept = min(self.kept, half)
            self.margins = step.removal.coefficients @ self.K_S[:half, past:]
            return
        u = self.K_new[i, past:] if beta is None else beta.dot(self.K_S[:size, past:])
        self.margins = daxpy(u, self.margins, a=weight)
        if factor != 1.0:
            self.margins *= factor
        if beta is None:
            if past or size < half:
                self.K_S[size] = self.K_new[i]
            self.stored.append(self.first + i)
            if state.phase == POMD:
                self.alone.append(self.X[i])

    def _row_alone(self, i: int) -> FactorRow:
        """The row by which L grows, as a round alone computes it: L keeps its rounding, which near points magnify."""
        kernel, x = self.config.kernel, self.X[i]
        return row_of(self.state, kernel.at(x), kernel.row(self.alone, x)[self.config.window :])

    def _guess_product(self, beta: F64) -> float:
        """<sum_j beta_j k(x_j, .), g_t> over the points of S, in round i."""
        i, end = self.i, self.i + self.config.window
        moved = beta.dot(self.K_S[: len(beta), i:end])
        return float(self.labels[i:end].dot(moved)) / self.state.in_window(self.config)

    def _kept_points(self) -> F64:
        """The first B/2 points of S."""
        return self.points.coordinates()[self._members()[: self.half]]

    def _members(self) -> NDArray[np.intp]:
        """The indices of the points of S."""
        M = self.config.window
        return np.concatenate((np.arange(M, M + self.kept), np.array(self.stored, dtype=np.intp)))

    def _settle(self, n: int) -> None:
        """Give the state the points, the window and the ring as they are after n rounds."""
        state, M = self.state, self.config.window
        slots = (state.t + np.arange(M)) % M
        window = np.empty(M, dtype=np.intp)
        window[slots], state.labels[slots] = self.stream[n : n + M], self.labels[n : n + M]
        members = self._members()
        self.points.select(np.concatenate((window, members)))
        state.points = self.points
        if n:
            state.kappa = self.tops[n - 1]
        if state.phase == POMD:
            ring = np.empty((len(members), M))
            ring[:, slots] = self.K_S[: len(members), n : n + M]
            state.ring = GrowingArray.unpack(ring)
