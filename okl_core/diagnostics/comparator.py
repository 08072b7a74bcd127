r"""Regret against the best function in hindsight: a convex problem in the kernel's feature space, solved with a proof.

    minimise  sum_t l(f(x_t), y_t) + (alpha / 2) |f|^2   over |f| <= U and |f(x_t)| <= C for all t.

| symbol | meaning                                                                            | shape  |
|--------|------------------------------------------------------------------------------------|--------|
| B      | pivoted Cholesky factor, K = B B^T: row t is phi_t in an orthonormal basis         | (n, r) |
| u      | f in that basis: f(x_t) = (B u)_t, \|f\| = \|u\|                                    | (r,)   |
| p      | multipliers of v = B u                                                             | (n,)   |

Whatever p is, no function has an objective below

    -sum_t sup_{|a| <= C} (p_t a - l(a, y_t)) - sup_{0 <= s <= U} (s sqrt(p^T K p) - (alpha / 2) s^2),

and at the optimum, with p_t a slope of the t-th loss and its bounds, it is the optimum: the difference to what was
found, `Comparator.gap`, is a certificate.

References: [boyd2004] section 5.5.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.diagnostics.interior_point import FunctionClass, InteriorPoint
from okl_core.errors import ConfigError, LabelError, NonFiniteError, ShapeError
from okl_core.kernels.kernels import Kernel
from okl_core.losses import LOSSES, Loss, LossName
from okl_core.types import F64


@final
@dataclass(frozen=True, slots=True)
class Comparator:
    """The best function in hindsight on n rounds, f = sum_i coefficients_i k(x_i, .)."""

    values: F64
    """f(x_t), shape (n,)."""
    losses: F64
    """l(f(x_t), y_t), shape (n,)."""
    coefficients: F64
    """Shape (n,)."""
    norm: float
    """|f|."""
    regularization: float
    """alpha."""
    lower: float
    """No function of the class has an objective below this."""

    @property
    def loss(self) -> float:
        """The cumulative loss."""
        return float(self.losses.sum())

    @property
    def objective(self) -> float:
        """loss + (alpha / 2) |f|^2."""
        return self.loss + 0.5 * self.regularization * self.norm**2

    @property
    def gap(self) -> float:
        """objective - lower: f misses the optimum by no more; rounding may leave it just below 0."""
        return self.objective - self.lower


def regret_curve(losses: F64, comparator_losses: F64) -> F64:
    """sum_{s <= t} (losses_s - comparator_losses_s) for every t, shape (n,). Raises ShapeError."""
    if losses.shape != comparator_losses.shape:
        raise ShapeError(f"losses of shape {losses.shape} against losses of shape {comparator_losses.shape}")
    return np.cumsum(losses - comparator_losses)


def best_in_hindsight(
    kernel: Kernel,
    X: F64,  # (n, d)
    y: F64,  # (n,)
    loss: LossName,
    *,
    regularization: float = 0.0,
    radius: float = math.inf,
    clip: float = math.inf,
    tolerance: float = 1e-9,
) -> Comparator:
    r"""The function that minimises the objective of the module, with alpha = `regularization`, U = `radius`, C = `clip`.

    Parameters
    ----------
    regularization : float
        alpha >= 0.
    radius, clip : float
        U and C > 0, infinite for none. One of the three must restrict f, or there need not be a minimum.
    tolerance : float
        The gap that is good enough, relative to max(1, objective). Read what was reached from `Comparator.gap`: where
        neither alpha nor U holds f, rounding may end the search before.

    Raises
    ------
    ConfigError, ShapeError, NonFiniteError, LabelError

    Notes
    -----
    Time O(n r^2) for each of some ten steps, r the rank of K; memory O(n^2). K is known to n eps of its largest entry,
    and so is what the gap proves.

    Examples
    --------
    >>> from okl_core import Linear
    >>> best = best_in_hindsight(Linear(), np.ones((3, 1)), np.array([1.0, 1.0, -1.0]), "squared", regularization=2.0)
    >>> best.values.round(6), round(best.objective, 6)
    (array([0.25, 0.25, 0.25]), 2.75)
    """
    restricted = FunctionClass(regularization, radius, clip)
    found = _checked(X, y, loss, restricted)
    basis = _Basis.of(kernel.gram(X))
    # Where nothing holds |f|, only a p that no function sees proves anything.
    seen = np.linalg.qr(basis.B).Q if regularization == 0.0 and math.isinf(radius) else None
    u, lower = np.zeros(basis.B.shape[1]), -math.inf
    for point in InteriorPoint(basis.B, y, found, restricted):
        u = point.u
        p = point.p if seen is None else point.p - seen @ (seen.T @ point.p)
        size = 0.0 if seen is not None else float(np.linalg.norm(basis.B.T @ p))
        lower = max(lower, _lower_bound(p, size, y, found, restricted))
        objective = float(found.values(point.v, y).sum()) + 0.5 * regularization * float(u @ u)
        if objective - lower <= tolerance * max(1.0, objective):
            break
    values = basis.B @ u
    losses = found.values(values, y)
    return Comparator(values, losses, basis.coefficients(u), float(np.linalg.norm(u)), regularization, lower)


def _checked(X: F64, y: F64, name: LossName, restricted: FunctionClass) -> Loss:
    """The loss of this name, if it and the arguments make a problem that has a solution."""
    alpha, U, C = restricted
    if name not in LOSSES:
        raise ConfigError(f"unknown loss {name!r}; known: {', '.join(LOSSES)}")
    if not (alpha >= 0.0 and U > 0.0 and C > 0.0 and (alpha > 0.0 or math.isfinite(U) or math.isfinite(C))):
        raise ConfigError("one of regularization > 0, radius > 0 and clip > 0 must restrict the functions")
    if X.ndim != 2 or y.shape != (len(X),) or not len(X):
        raise ShapeError(f"X has shape {X.shape} and y {y.shape}; they must be (n, d) and (n,), n >= 1")
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise NonFiniteError("every input and every truth must be finite")
    loss = LOSSES[name]
    if loss.target == "binary" and not (np.abs(y) == 1.0).all():
        raise LabelError(f"the {name} loss takes the labels -1 and 1", "y")
    return loss


class _Basis(NamedTuple):
    """`pivots` are r of the n rounds. All others lie in their span, but for n eps of the largest k(x, x): rounding."""

    B: F64
    pivots: NDArray[np.intp]

    @classmethod
    def of(cls, K: F64) -> _Basis:
        C, order, r, _ = dpstrf(K, lower=1)
        order = order - 1
        B = np.empty((len(K), r))
        B[order] = np.tril(C)[:, :r]
        return cls(B, order[:r])

    def coefficients(self, u: F64) -> F64:
        a = np.zeros(len(self.B))
        a[self.pivots] = solve_triangular(self.B[self.pivots], u, lower=True, trans=1)
        return a


def _lower_bound(p: F64, size: float, y: F64, loss: Loss, restricted: FunctionClass) -> float:
    """The bound of the module, for a p with sqrt(p^T K p) = size."""
    alpha, U, C = restricted
    s = min(U, size / alpha) if alpha > 0.0 else U
    of_norm = s * (size - 0.5 * alpha * s) if size > 0.0 else 0.0
    return -float(loss.conjugate(p, y, C).sum()) - of_norm
