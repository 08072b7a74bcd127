r"""A kernel with coordinate relevances: smooth in all coordinates, with steps along some of them and along pairs of these.

| symbol | meaning                                                                | shape |
|--------|------------------------------------------------------------------------|-------|
| rho    | `smooth`: inverse squared length scales                                | (d,)  |
| w      | `steps`: weights of single coordinates                                 | (d,)  |
| p      | `pairs`: weights of coordinates in pairs                               | (d,)  |
| E_j    | exp(-ROUGHNESS \|x_j - z_j\|), the Laplacian kernel of one coordinate  |       |

    k(x, z) = amount / (1 + sum_j rho_j (x_j - z_j)^2 / 2) + sum_j w_j E_j + sum_{i<j} p_i p_j E_i E_j

The first term is the rational quadratic kernel, a mixture of Gaussian kernels of all length scales. The others are the
first two orders of an ANOVA kernel, for rules on one or two coordinates. With more than EXPLICIT coordinates the inner
product `linear` <x - CENTRE, z - CENTRE> is added; otherwise the owner represents it by explicit features.

References: [rasmussen2006] section 4.2.1 (equation 4.19); [duvenaud2011] section 3 for sums over the orders of interaction.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from okl_core.errors import ConfigError
from okl_core.kernels.kernels import Kernel
from okl_core.kernels.points import Points
from okl_core.types import F64

ROUGHNESS = 4.0
"""Inverse length scale of the steps, for coordinates that are mostly in [0, 1]."""

CENTRE = 0.5
"""Centre of each coordinate in the linear part."""

EXPLICIT = 64
"""Most coordinates for which explicit linear features cost less than the dictionary points that would replace them."""

Weights = Annotated[list[Annotated[float, Field(ge=0.0, le=1e6)]], Field(min_length=1)]


def cauchy(A: F64, B: F64) -> F64:
    """1 / (1 + |a_i - b_j|^2 / 2), shape (n, m), for A of shape (n, d) and B of shape (m, d)."""
    r = A @ (-B.T)
    r += 0.5 * np.einsum("ij,ij->i", A, A)[:, None]
    r += 0.5 * np.einsum("ij,ij->i", B, B)
    np.maximum(r, 0.0, out=r)
    r += 1.0
    return np.reciprocal(r, out=r)


def step_values(a: F64, b: F64) -> F64:
    """E of one coordinate, shape (n, m), for a of shape (n,) and b of shape (m,), in [-150, 150]."""
    # exp(-|a - b|) is the smaller of exp(a) exp(-b) and exp(b) exp(-a), so n + m exponentials suffice instead of n m.
    u, v = np.exp(ROUGHNESS * a), np.exp(-ROUGHNESS * b)
    E = np.multiply.outer(u, v)
    return np.minimum(E, np.multiply.outer(1.0 / u, 1.0 / v), out=E)


@final
class RelevanceKernel(Kernel):
    """The kernel of this module; `smooth`, `steps` and `pairs` have one number per coordinate."""

    kind: Literal["relevance"] = "relevance"
    translation_invariant: ClassVar[bool] = False
    amount: float = Field(default=10.0, gt=0.0, le=1e6, description="Of the smooth part.")
    linear: float = Field(default=1.0, gt=0.0, le=1e6, description="Of the linear part.")
    smooth: Weights = Field(description="Inverse squared length scale of each coordinate.")
    steps: Weights = Field(description="Weight of the steps along each coordinate.")
    pairs: Weights = Field(description="Weight of each coordinate in pairs of steps.")

    @property
    def dim(self) -> int | None:
        return len(self.smooth)

    @property
    def has_even_lists(self) -> bool:
        """Whether `smooth`, `steps` and `pairs` are equally long."""
        return len(self.smooth) == len(self.steps) == len(self.pairs)

    @property
    def is_explicit(self) -> bool:
        """Whether the linear part is left to explicit features of the owner."""
        return len(self.smooth) <= EXPLICIT

    @cached_property
    def _rho(self) -> F64:
        return np.array(self.smooth)

    @cached_property
    def roots(self) -> F64:
        """sqrt(rho), shape (d,)."""
        return np.sqrt(self._rho)

    @cached_property
    def _weights(self) -> tuple[NDArray[np.intp], F64, F64]:
        """The coordinates with steps, with their w and p."""
        w, p = np.array(self.steps), np.array(self.pairs)
        rough = np.flatnonzero((w > 0.0) | (p > 0.0))
        return rough, w[rough], p[rough]

    @cached_property
    def _constant(self) -> float:
        """k(x, x) without the linear part."""
        _, w, p = self._weights
        return self.amount + float(w.sum()) + 0.5 * max(float(p.sum() ** 2 - p @ p), 0.0)

    def root_for(self, dim: int) -> F64 | None:
        if dim != len(self.smooth):
            message = f"lists of {len(self.smooth)} numbers, the learner has {dim} inputs"
            raise ConfigError(f"relevance: {message}", [(("config", "relevance"), message)])
        return None

    def diag(self, X: F64) -> F64:
        diagonal = np.full(len(X), self._constant)
        if not self.is_explicit:
            centred = X - CENTRE
            diagonal += self.linear * np.einsum("ij,ij->i", centred, centred)
        return diagonal

    def encoded_row(self, S: Points, row: F64) -> F64:
        A, x = S.coordinates(), S.decode(row)
        moved = A - x
        rough, w, p = self._weights
        E = np.exp(-ROUGHNESS * np.abs(moved[:, rough]))
        values = E @ w
        if not self.is_explicit:
            values += (A - CENTRE) @ (self.linear * (x - CENTRE))
        moved *= moved
        values += self.amount / (1.0 + 0.5 * (moved @ self._rho))
        pairs = E @ p
        E *= E
        values += 0.5 * (pairs * pairs - E @ (p * p))
        return values

    def encoded_block(self, S: Points, X: F64) -> F64:
        A = S.coordinates()
        K = cauchy(A * self.roots, X * self.roots)
        K *= self.amount
        if not self.is_explicit:
            K += (A - CENTRE) @ (self.linear * (X - CENTRE).T)
        rough, w, p = self._weights
        if len(rough):
            total, squares = np.zeros_like(K), np.zeros_like(K)
            for j, w_j, p_j in zip(rough.tolist(), w.tolist(), p.tolist(), strict=True):
                E = step_values(A[:, j], X[:, j])
                K += w_j * E
                E *= p_j
                total += E
                E *= E
                squares += E
            total *= total
            total -= squares
            total *= 0.5
            K += total
        return K
