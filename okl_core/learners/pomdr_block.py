"""A block of POMDR rounds from one matrix product: what `play` and `learn` do, without a kernel row of their own.

The arena K holds every kernel value that the block can need. Its rows are the window's slots, S and the block itself;
its columns the inputs of the block and, in phase 1, those of the window before them. S is then a list of rows, and
`margins` holds f' / scale at the block's inputs: a round that changes f' adds one row of the arena to it.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import daxpy  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.rng import RoundRng
from okl_core.learners.pomdr_step import PomdrConfig, PomdrState, Seen, carry, decide, rate
from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64


class Block:
    """The next rounds of a state. The arena fits until phase 2 begins, or the half that removals keep is complete."""

    def __init__(self, config: PomdrConfig, state: PomdrState, X: F64, y: F64, kappas: F64) -> None:
        M, n, s = config.window, len(y), len(state.coefficients)
        self.config, self.state = config, state
        self.half = config.budget // 2
        if len(state.points) == 0:
            state.points.extend(np.tile(X[0], (M, 1)))
        by_age = (state.t + np.arange(M)) % M
        inputs = X
        if state.phase == 1:
            inputs = np.vstack((state.points.coordinates()[by_age], X))
        self.past = len(inputs) - n
        state.points.extend(X)
        self.K = config.kernel.block(state.points, inputs)
        self.stream = np.concatenate((by_age, M + s + np.arange(n)))
        self.labels = np.concatenate((state.labels[by_age], y))
        self.g = self._window_means(state.t, M, n).tolist()
        self.y, self.kappas = y.tolist(), kappas.tolist()
        self.tops = np.maximum.accumulate(np.maximum(kappas, state.kappa)).tolist()
        self.S = np.concatenate((np.arange(M, M + s), np.empty(n, dtype=np.intp)))
        self.size = s
        self.margins = self._function(state.coefficients.view)

    def _window_means(self, t: int, M: int, n: int) -> F64:
        """g at every input, (n,)."""
        rounds = np.arange(n)[:, None]
        window = rounds + np.arange(M)
        band = self.K[self.stream[window], self.past + rounds]
        return np.einsum("ij,ij->i", self.labels[window], band) / np.clip(t + np.arange(n), 1, M)

    def _function(self, a: F64) -> F64:
        """sum_i a_i k(x_i, .) of the oldest points of S at every input of the block, (n,)."""
        M = self.config.window
        return a @ self.K[M : M + len(a), self.past :]

    def run(self, rng: RoundRng) -> list[float]:
        """Learn rounds until the arena no longer fits; the values played."""
        state, y, g, tops = self.state, self.y, self.g, self.tops
        values: list[float] = []
        try:
            for i in range(len(y)):
                rng.at(state.t + 1)
                prime = state.scale * self.margins.item(i)
                lambda_t = rate(self.config, state, tops[i])
                value = prime + lambda_t * g[i]
                fits = True
                if rng.decide(y[i] * value < 1.0):
                    fits = self._violate(i, Seen(y[i], lambda_t, self.kappas[i], tops[i], prime, g[i]), rng)
                state.t += 1
                values.append(value)
                if not fits:
                    break
        finally:
            self._settle(len(values))
        return values

    def _violate(self, i: int, seen: Seen, rng: RoundRng) -> bool:
        """The second half of a round with loss. Does the arena still fit?"""
        config, state, M = self.config, self.state, self.config.window
        phase, scale, own = state.phase, state.scale, self.stream[M + i]
        # In phase 2 only the kept half is looked at, and it is where the block found it.
        rows = self.S[: self.size] if phase == 1 else slice(M, M + self.half)
        moved = self.K[own]

        def average(beta: F64) -> float:
            nonlocal moved
            moved = beta @ self.K[rows]
            return float(self.labels[i : i + M].dot(moved[i : i + M])) / max(1, min(state.t, M))

        step = decide(config, state, seen, self.K[rows, self.past + i], average, rng)
        carry(config, state, step)
        if step.merged is not None:
            self.size = self.half
            self.margins = self._function(step.merged)
            return True
        self.margins = daxpy(moved[self.past :], self.margins, a=step.weight / scale)
        if step.beta is None:
            self.S[self.size] = own
            self.size += 1
        return phase == state.phase and state.scale <= scale and (step.beta is not None or self.size != self.half)

    def _settle(self, played: int) -> None:
        """Bring the points, the window and the ring of the state to where the rounds played have left them."""
        state, M = self.state, self.config.window
        newest = np.arange(played, played + M)
        slots = (state.t - played + newest) % M
        member = self.S[: self.size]
        if played:
            state.kappa = self.tops[played - 1]
        state.labels[slots] = self.labels[newest]
        if state.phase == 1:
            ring = np.empty((self.size, M))
            ring[:, slots] = self.K[member][:, newest]
            state.ring = GrowingArray.unpack(ring)
        window = np.empty(M, dtype=np.intp)
        window[slots] = self.stream[newest]
        state.points.select(np.concatenate((window, member)))
