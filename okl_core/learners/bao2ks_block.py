"""A block of B(AO)2KS rounds from one kernel block: what `play` and `learn` do, without a kernel row of their own.

The kernel values have a row for each slot of V, each point of S outside V and each input of the block, and a column for
each slot and each input. `margins` holds sum_i coefficients_i k(x_i, .) over the columns, `g` the guess.
"""

from __future__ import annotations

import copy

import numpy as np
from scipy.linalg.blas import daxpy  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.rng import RoundRng
from okl_core.learners.bao2ks_step import Bao2ksConfig, Bao2ksState, Seen, carry, decide, restart, take_stock
from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64


class Block:
    """The next n rounds of a state, which nothing changes before all of them are played. X: (n, d)."""

    def __init__(self, config: Bao2ksConfig, state: Bao2ksState, X: F64, y: F64, kappas: F64) -> None:
        M = config.reservoir
        self.config, self.state, self.X = config, state, X
        self.y, self.kappas = y.tolist(), kappas.tolist()
        self.now = copy.copy(state)
        """The numbers after the rounds so far; of its arrays only labels and members are its own."""
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
        """Of each slot: its column, and its row."""
        self.a = state.coefficients.view[:M].copy()
        self.rest = list(range(M, len(points)))
        """Rows of the points of S outside V."""
        self.a_rest = state.coefficients.view[M:].tolist()
        self.margins: F64 = state.coefficients.view @ self.K_old
        self._look_at_guess()

    def run(self, rng: RoundRng) -> list[float]:
        """Learn the rounds; the values played. Raises DivergedError before anything has changed."""
        M, now, budget = self.config.reservoir, self.now, self.config.budget
        values: list[float] = []
        for i, (y, kappa) in enumerate(zip(self.y, self.kappas, strict=True)):
            rng.at(now.t + 1)
            g = self.g.item(M + i)
            prime = now.scale * (self.margins.item(M + i) + now.pull * g)
            decision = decide(self.config, now, Seen(y, kappa, prime, g), rng)
            values.append(decision.value)
            if decision.move is None and decision.slot < 0:
                now.t += 1
                continue
            own, factor = carry(now, decision)
            if factor != 1.0:
                self.margins *= factor
                self.a *= factor
                self.a_rest = [factor * a for a in self.a_rest]
            if own != 0.0:
                self.margins = daxpy(self.K_new[i], self.margins, a=own)
            if decision.slot >= 0:
                self._replace(decision.slot, i, own)
            elif own != 0.0:
                self.rest.append(len(self.K_old) + i)
                self.a_rest.append(own)
            if len(self.rest) > budget - M and int(now.members.sum()) + len(self.rest) > budget:
                self._restart()
            if decision.slot >= 0:
                self._take_stock()
        self._settle()
        return values

    def _replace(self, slot: int, i: int, own: float) -> None:
        """Input i takes a slot of V, with its coefficient."""
        now, M = self.now, self.config.reservoir
        daxpy(self.g, self.margins, a=now.pull)
        self.a += now.pull / max(1, min(now.t - 1, M)) * now.labels
        now.pull = 0.0
        if now.members[slot]:
            column = self.slots[slot]
            self.rest.append(column if column < M else len(self.K_old) + column - M)
            self.a_rest.append(self.a.item(slot))
        self.slots[slot] = M + i
        self.K_slots[slot] = self.K_new[i]
        self.a[slot] = own
        now.labels[slot], now.members[slot] = self.y[i], float(own != 0.0)

    def _restart(self) -> None:
        self.margins[:] = 0.0
        self.a[:] = 0.0
        self.rest, self.a_rest = [], []
        restart(self.now)

    def _look_at_guess(self) -> F64:
        """g over the columns. (1/|V|) y over the slots."""
        M = self.config.reservoir
        mean = self.now.labels / max(1, min(self.now.t, M))
        self.g = mean @ self.K_slots
        return mean

    def _take_stock(self) -> None:
        """g, <f', g> and |g|^2 once V has changed."""
        mean, now = self._look_at_guess(), self.now
        take_stock(now, float(mean @ self.margins[self.slots]), float(mean @ self.g[self.slots]))

    def _settle(self) -> None:
        """Bring the state to where the rounds have left it."""
        state, now, M = self.state, self.now, self.config.reservoir
        if state.t == 0:
            state.points.extend(np.tile(self.X[0], (M, 1)))
        state.points.extend(self.X)
        slots = [c if c < M else len(self.K_old) + c - M for c in self.slots]
        state.points.select(np.array(slots + self.rest))
        state.coefficients = GrowingArray.unpack(np.append(self.a, self.a_rest))
        state.labels, state.members = now.labels, now.members
        state.t, state.scale, state.pull = now.t, now.scale, now.pull
        state.norm2, state.inner, state.guess2 = now.norm2, now.inner, now.guess2
        state.violations, state.sampled, state.restarts = now.violations, now.sampled, now.restarts
