"""A block of B(AO)2KS rounds, played from two matrices of kernel values.

`K_old` has a row for each slot of V and each point of S outside V, `K_new` one for each input of the block. Both have a
column for each slot and each input. `margins` holds sum_i coefficients_i k(x_i, .) over the columns, and `g` the guess.
"""

from __future__ import annotations

import copy

import numpy as np
from scipy.linalg.blas import daxpy  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.rng import RoundRng
from okl_core.first_order.in_blocks import settle
from okl_core.learners.bao2ks.bao2ks_round import Bao2ksView, absorb, absorb_guess, decide_round, restart
from okl_core.learners.bao2ks.bao2ks_state import Bao2ksConfig, Bao2ksState
from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64


class Bao2ksBlock:
    """The next n rounds of a state, which changes once all of them are played; X has shape (n, d)."""

    def __init__(self, config: Bao2ksConfig, state: Bao2ksState, X: F64, y: F64, kappas: F64) -> None:
        M = config.reservoir
        self.config, self.state, self.X = config, state, X
        self.y, self.kappas = y.tolist(), kappas.tolist()
        self.now = copy.copy(state)
        """The state after the rounds so far, but for its points and coefficients."""
        self.now.labels, self.now.members = state.labels.copy(), state.members.copy()
        points = state.points
        if state.t == 0:
            points = config.kernel.points(X.shape[1])
            points.extend(np.tile(X[0], (M, 1)))
        inputs = np.vstack((points.coordinates()[:M], X))
        self.K_old = config.kernel.block(points, inputs)
        self.K_new = config.kernel.block(X, inputs)
        self.K_slots = self.K_old[:M].copy()
        """The rows of the points in the slots."""
        self.slots = list(range(M))
        """The column of each slot's point."""
        self.a = state.coefficients.view[:M].copy()
        self.rest = list(range(M, len(points)))
        """The points of S outside V: their rows, those of K_new behind those of K_old."""
        self.a_rest = state.coefficients.view[M:].tolist()
        self.margins: F64 = state.coefficients.view @ self.K_old
        self.g: F64 = state.guess_weights() @ self.K_slots

    def run(self, rng: RoundRng) -> list[float]:
        """Learn the rounds and return the forecasts. Raises DivergedError before anything has changed."""
        M, now, budget = self.config.reservoir, self.now, self.config.budget
        values: list[float] = []
        for i, (y, kappa) in enumerate(zip(self.y, self.kappas, strict=True)):
            rng.at(now.t + 1)
            g = self.g.item(M + i)
            prime = now.scale * (self.margins.item(M + i) + now.pull * g)
            decision = decide_round(self.config, now, Bao2ksView(y, kappa, prime, g), rng)
            values.append(decision.value)
            guess = now.guess_weights() if decision.slot >= 0 else None
            own, factor = absorb(now, decision)
            if factor != 1.0:
                self.margins *= factor
                self.a *= factor
                self.a_rest = [factor * a for a in self.a_rest]
            if own != 0.0:
                self.margins = daxpy(self.K_new[i], self.margins, a=own)
            if guess is not None:
                self._replace(decision.slot, i, own, guess)
            elif own != 0.0:
                self.rest.append(len(self.K_old) + i)
                self.a_rest.append(own)
            if len(self.rest) > budget - M and int(now.members.sum()) + len(self.rest) > budget:
                self._restart()
            if guess is not None:
                self._look_at_guess()
        self._settle()
        return values

    def _replace(self, slot: int, i: int, own: float, guess: F64) -> None:
        """Let input i, with the coefficient `own`, take a slot of V. `guess` has the coefficients of g so far."""
        now = self.now
        daxpy(self.g, self.margins, a=now.pull)
        self.a += now.pull * guess
        now.pull = 0.0
        if now.members[slot]:
            self.rest.append(self._row(self.slots[slot]))
            self.a_rest.append(self.a.item(slot))
        self.slots[slot] = self.config.reservoir + i
        self.K_slots[slot] = self.K_new[i]
        self.a[slot] = own
        now.labels[slot], now.members[slot] = self.y[i], float(own != 0.0)

    def _row(self, column: int) -> int:
        """The row of the point that a column belongs to."""
        M = self.config.reservoir
        return column if column < M else len(self.K_old) + column - M

    def _restart(self) -> None:
        """Start f' again from 0."""
        self.margins[:] = 0.0
        self.a[:] = 0.0
        self.rest, self.a_rest = [], []
        restart(self.now)

    def _look_at_guess(self) -> None:
        """Compute g, <f', g> and |g|^2 after V has changed."""
        now, guess = self.now, self.now.guess_weights()
        self.g = guess @ self.K_slots
        absorb_guess(now, float(guess @ self.margins[self.slots]), float(guess @ self.g[self.slots]))

    def _settle(self) -> None:
        """Carry the rounds into the state."""
        now, points = self.now, self.state.points
        if self.state.t == 0:
            points.extend(np.tile(self.X[0], (self.config.reservoir, 1)))
        points.extend(self.X)
        points.select(np.array([*map(self._row, self.slots), *self.rest]))
        now.coefficients = GrowingArray.unpack(np.append(self.a, self.a_rest))
        settle(self.state, now)
