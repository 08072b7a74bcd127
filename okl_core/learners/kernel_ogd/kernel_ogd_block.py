"""A block of kernel OGD rounds, played from two matrices of kernel values.

`K_old` has a row for each stored point, `K_new` one for each input of the block. `margins` holds f / scale at the inputs of
the block, and before them at the points that the block may drop, if |f| is kept. A round that stores its input adds a
row of kernel values to it.
"""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
from scipy.linalg.blas import daxpy  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.contract.rng import RoundRng
from okl_core.first_order.in_blocks import settle
from okl_core.learners.kernel_ogd.kernel_ogd_round import OldestPoint, absorb, projected_step
from okl_core.learners.kernel_ogd.kernel_ogd_state import KernelOgdConfig, KernelOgdState
from okl_core.types import F64


class KernelOgdBlock:
    """The next n rounds of a state, which changes once all of them are played; X has shape (n, d)."""

    def __init__(self, config: KernelOgdConfig, state: KernelOgdState, X: F64, y: F64, kappas: F64) -> None:
        s, n = len(state.points), len(y)
        self.config, self.state, self.X = config, state, X
        self.y, self.kappas = y.tolist(), kappas.tolist()
        self.now = copy.copy(state)
        """The state after the rounds so far, but for its points and coefficients."""
        B = s + n if config.budget is None else config.budget
        self.q = max(0, min(s, s + n - B)) if config.has_norm else 0
        """Points stored before the block that it may drop."""
        inputs = X
        if self.q:
            first = (state.oldest + np.arange(self.q)) % s
            inputs = np.vstack((state.points.coordinates()[first], X))
        self.K_old = config.kernel.block(state.points, inputs)
        self.K_new = config.kernel.block(X, inputs)
        self.a = np.concatenate((state.coefficients.view, np.empty(min(n, B - s))))
        self.margins: F64 = self.a[:s] @ self.K_old
        self.origin = list(range(s))
        """Of each point: its row in K_old, or s plus its row in K_new."""
        self.joined: list[int] = []
        """Rounds that stored a point without dropping one."""

    def run(self, rng: RoundRng) -> list[float]:
        """Learn the rounds and return the forecasts. Raises DivergedError before anything has changed."""
        now, q, a, origin, K_new = self.now, self.q, self.a, self.origin, self.K_new
        s, budget, has_norm = len(self.K_old), self.config.budget, self.config.has_norm
        values: list[float] = []
        for i, (truth, kappa) in enumerate(zip(self.y, self.kappas, strict=True)):
            rng.at(now.t + 1)
            size = len(origin)
            m = now.scale * self.margins.item(q + i)
            oldest = partial(self._oldest, i) if size == budget and has_norm else None
            step = projected_step(self.config, now, truth, m, kappa, oldest, rng)
            values.append(step.value)
            factor = absorb(now, step)
            if factor != 1.0:
                a[:size] *= factor
                self.margins *= factor
            if not step.has_loss:
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
        """The kernel row of a point."""
        s = len(self.K_old)
        return self.K_old[origin] if origin < s else self.K_new[origin - s]

    def _oldest(self, i: int) -> OldestPoint:
        """The point that round i drops if it stores its input."""
        now, s, slot = self.now, len(self.K_old), self.now.oldest
        origin = self.origin[slot]
        row = self._row(origin)
        own = (slot - self.state.oldest) % s if origin < s else self.q + origin - s
        f = now.scale * self.margins.item(own)
        return OldestPoint(now.scale * self.a.item(slot), f, row.item(self.q + i), row.item(own))

    def _settle(self) -> None:
        """Carry the rounds into the state."""
        state, now, s = self.state, self.now, len(self.K_old)
        # The first point ever stored is the origin of all, even if the block has replaced it.
        state.points.extend(self.X[self.joined])
        before = np.concatenate((np.arange(s), s + np.array(self.joined, dtype=np.intp)))
        after = np.array(self.origin, dtype=np.intp)
        replaced = np.flatnonzero(before != after)
        state.points.replace_block(replaced, self.X[after[replaced] - s])
        state.coefficients.view[:] = self.a[:s]
        state.coefficients.extend(self.a[s : len(self.origin)])
        settle(state, now)
