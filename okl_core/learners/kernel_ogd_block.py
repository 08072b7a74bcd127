"""A block of kernel OGD rounds from one kernel block: what `play` and `learn` do, without a kernel row of their own.

`margins` holds f / scale at the inputs of the block, so that a round that changes f adds one row of kernel values to
it. Where |f| is kept it holds f at the points that the block may drop, too.
"""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
from scipy.linalg.blas import daxpy  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.rng import RoundRng
from okl_core.learners.kernel_ogd_step import KernelOgdConfig, KernelOgdState, Oldest, carry, decide
from okl_core.types import F64


class Block:
    """The next n rounds of a state, which nothing changes before all of them are played. X: (n, d)."""

    def __init__(self, config: KernelOgdConfig, state: KernelOgdState, X: F64, y: F64, kappas: F64) -> None:
        s, n = len(state.points), len(y)
        self.config, self.state, self.X = config, state, X
        self.y, self.kappas = y.tolist(), kappas.tolist()
        self.now = copy.copy(state)
        """The numbers after the rounds so far; its arrays are those of the state."""
        B = s + n if config.budget is None else config.budget
        self.q = max(0, min(s, s + n - B)) if config.has_norm else 0
        """Points of before the block that it may drop."""
        inputs = X
        if self.q:
            first = (state.oldest + np.arange(self.q)) % s
            inputs = np.vstack((state.points.coordinates()[first], X))
        self.K_old = config.kernel.block(state.points, inputs)
        self.K_new = config.kernel.block(X, inputs)
        self.a = np.concatenate((state.coefficients.view, np.empty(min(n, B - s))))
        self.margins: F64 = self.a[:s] @ self.K_old
        self.origin = list(range(s))
        """Of each point: its row of K_old, or s plus that of K_new."""
        self.joined: list[int] = []
        """Rounds that stored a point without dropping one."""

    def run(self, rng: RoundRng) -> list[float]:
        """Learn the rounds; the values played. Raises DivergedError before anything has changed."""
        now, q, a, origin, K_new = self.now, self.q, self.a, self.origin, self.K_new
        s, budget, has_norm = len(self.K_old), self.config.budget, self.config.has_norm
        values: list[float] = []
        for i, (truth, kappa) in enumerate(zip(self.y, self.kappas, strict=True)):
            rng.at(now.t + 1)
            size = len(origin)
            drop = partial(self._oldest, i) if size == budget and has_norm else None
            step = decide(self.config, now, truth, now.scale * self.margins.item(q + i), kappa, drop, rng)
            values.append(step.value)
            factor = carry(now, step)
            if factor != 1.0:
                a[:size] *= factor
                self.margins *= factor
            if not step.is_stored:
                continue
            weight = step.weight / now.scale
            if size == budget:
                slot = now.oldest
                daxpy(self._row(origin[slot]), self.margins, a=-a.item(slot))
                origin[slot] = s + i
                now.oldest = (slot + 1) % size
                now.dropped += 1
            else:
                slot = size
                origin.append(s + i)
                self.joined.append(i)
            a[slot] = weight
            daxpy(K_new[i], self.margins, a=weight)
        self._settle()
        return values

    def _row(self, origin: int) -> F64:
        s = len(self.K_old)
        return self.K_old[origin] if origin < s else self.K_new[origin - s]

    def _oldest(self, i: int) -> Oldest:
        """What round i drops if it stores its point."""
        now, s, slot = self.now, len(self.K_old), self.now.oldest
        origin = self.origin[slot]
        row = self._row(origin)
        own = (slot - self.state.oldest) % s if origin < s else self.q + origin - s
        f = now.scale * self.margins.item(own)
        return Oldest(now.scale * self.a.item(slot), f, row.item(self.q + i), row.item(own))

    def _settle(self) -> None:
        """Bring the state to where the rounds have left it."""
        state, now, s = self.state, self.now, len(self.K_old)
        # The first point ever stored is the origin of all, even if the block has replaced it.
        state.points.extend(self.X[self.joined])
        before = np.concatenate((np.arange(s), s + np.array(self.joined, dtype=np.intp)))
        after = np.array(self.origin, dtype=np.intp)
        replaced = np.flatnonzero(before != after)
        state.points.replace_block(replaced, self.X[after[replaced] - s])
        state.coefficients.view[:] = self.a[:s]
        state.coefficients.extend(self.a[s : len(self.origin)])
        state.t, state.oldest, state.dropped = now.t, now.oldest, now.dropped
        state.scale, state.norm2, state.kappa = now.scale, now.norm2, now.kappa
        state.bound_gradient = now.bound_gradient
