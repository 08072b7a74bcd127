r"""What a stream costs in theory: effective dimensions, leverage scores, and the regret bounds as numbers.

K is the kernel matrix of n rounds in their order, `kernel.gram(X)`, and a > 0 a regularization. A learner that weights
its rounds, as KONS does with w_t, sees sqrt(w_s) k(x_s, x_t) sqrt(w_t) in its place. One Cholesky factor of K + a I
serves every prefix of the stream, since that of its first t rounds is the factor's leading block.

| symbol     | meaning                                                                                     |
|------------|---------------------------------------------------------------------------------------------|
| tau_{t, i} | ridge leverage score of round i among the first t: entry (i, i) of K_t (K_t + a I)^{-1}     |
| d_eff(a)   | effective dimension, tr K (K + a I)^{-1} = sum_i tau_{T, i}                                 |
| d_onl(a)   | online effective dimension, sum_t tau_{t, t}                                                |

d_eff(a) <= d_onl(a) <= log det(I + K / a) <= d_eff(a) (1 + log(1 + |K| / a)), [calandriello2017] lemma 3.

The bounds hold for every f that the learner is compared with, and have |f| as `norm`. They bound the regret, which is
measured by `best_in_hindsight`. What a learner adds up itself (`describe`: log_det, bound_gradient, bound_step) is an
argument here. Unless it is said otherwise, the kernel has k(x, x) <= 1.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf, dtrtri  # pyright: ignore[reportAttributeAccessIssue]

from okl_core.errors import ConfigError, NotPositiveDefiniteError, ShapeError
from okl_core.types import F64


def leverage_scores(K: F64, regularization: float) -> F64:  # K: (n, n)
    """tau_{n, i} of every round i, shape (n,): its share of d_eff. Time O(n^3).

    All functions of K and a regularization raise ShapeError, ConfigError, NotPositiveDefiniteError.

    Examples
    --------
    >>> leverage_scores(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), 1.0).round(4)
    array([0.3333, 0.3333, 0.5   ])
    """
    inverse = _inverse_factor(K, regularization)
    return 1.0 - regularization * np.einsum("ij,ij->j", inverse, inverse)


def online_leverage_scores(K: F64, regularization: float) -> F64:  # K: (n, n)
    """tau_{t, t} of every round t at its own time, shape (n,). Time O(n^3).

    Examples
    --------
    >>> online_leverage_scores(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), 1.0).round(4)
    array([0.5   , 0.3333, 0.5   ])
    """
    return 1.0 - regularization / factor(K, regularization).diagonal() ** 2


def effective_dimensions(K: F64, regularization: float) -> F64:  # K: (n, n)
    """d_eff of the first t rounds, for every t; shape (n,). Time O(n^3)."""
    inverse = _inverse_factor(K, regularization)
    return np.cumsum(1.0 - regularization * np.einsum("ij,ij->i", inverse, inverse))


def effective_dimension(K: F64, regularization: float) -> float:  # K: (n, n)
    """d_eff: how many directions the rounds span, each counted by how far it stands out of the regularization."""
    return float(leverage_scores(K, regularization).sum())


def online_effective_dimension(K: F64, regularization: float) -> float:  # K: (n, n)
    """d_onl: how much new direction the rounds brought, each when it came."""
    return float(online_leverage_scores(K, regularization).sum())


def log_det(K: F64, regularization: float) -> float:  # K: (n, n)
    """log det(I + K / a)."""
    return float(2.0 * np.log(factor(K, regularization).diagonal()).sum() - len(K) * math.log(regularization))


def factor(K: F64, a: float) -> F64:
    """Lower Cholesky factor of K + a I."""
    if K.ndim != 2 or K.shape[0] != K.shape[1]:
        raise ShapeError(f"K has shape {K.shape}; a kernel matrix is square", "K")
    if not a > 0.0:
        raise ConfigError(f"the regularization is {a}; it must be positive")
    L, failed = dpotrf(K + a * np.eye(len(K)), lower=1)
    if failed:
        raise NotPositiveDefiniteError("K + a I is not positive definite; raise the regularization")
    return L


def _inverse_factor(K: F64, a: float) -> F64:
    return dtrtri(factor(K, a), lower=1)[0]


# -- online Newton steps ----------------------------------------------------------------------------------------------


def kons_bound(norm: float, regularization: float, bound_gradient: float, bound_step: float = 0.0) -> float:
    r"""(alpha / 2) |f|^2 + 1/2 sum g^2 q / (1 + w q) + 1/2 sum (eta - sigma) g^2 (value - f(x_t))^2, |f(x_t)| <= C.

    The two sums are what a Newton learner describes as `bound_gradient` and (at most) `bound_step`. Of a sketch they are
    those of the sketch, and the bound holds whatever its coins were.

    References: [calandriello2017] proposition 1 and the proof of theorem 1, whose terms can all be halved.
    """
    return 0.5 * regularization * norm**2 + bound_gradient + bound_step


def kons_log_det_bound(norm: float, regularization: float, curvature: float, log_det: float) -> float:
    r"""(alpha / 2) |f|^2 + log det(I + K_w / alpha) / (2 sigma), for curvature steps.

    K_w is weighted by w_t = sigma g_t^2; its log determinant is described as `log_det`.

    References: [calandriello2017] theorem 1 before lemma 3, halved.
    """
    return 0.5 * regularization * norm**2 + log_det / (2.0 * curvature)


def kons_dimension_bound(
    norm: float,
    regularization: float,
    curvature: float,
    lipschitz: float,
    rounds: int,
    dimension: float,
    *,
    as_printed: bool = False,
) -> float:
    r"""(alpha / 2) |f|^2 + d_eff(a) (1 + log(1 + T / a)) / (2 sigma) with a = alpha / (sigma L^2), for curvature steps.

    `dimension` is d_eff(a) of the stream without weights. The theorem prints alpha |f|^2 + 2 d_eff(a) log(2 sigma L^2 T)
    / sigma, for alpha <= sqrt(T): twice as much as its proof needs, and without the alpha that belongs below T.

    References: [calandriello2017] theorem 1, second display, and lemma 3.
    """
    if as_printed:
        printed = 2.0 * dimension * math.log(2.0 * curvature * lipschitz**2 * rounds) / curvature
        return regularization * norm**2 + printed
    a = regularization / (curvature * lipschitz**2)
    return kons_log_det_bound(norm, regularization, curvature, dimension * (1.0 + math.log1p(rounds / a)))


def kons_step_bound(
    norm: float,
    regularization: float,
    online_dimension: float,
    steps: F64,  # (T,)
    *,
    clip: float,
    lipschitz: float,
    curvature: float = 0.0,
    as_printed: bool = False,
) -> float:
    r"""(alpha / 2) |f|^2 + d_onl / (2 eta_T) + 2 C^2 L^2 sum (eta_t - sigma), for steps eta_t >= sigma that never grow.

    `online_dimension` is d_onl(alpha) of the stream weighted by w_t = eta_t g_t^2. The theorem prints the double.

    References: [calandriello2017] theorem 1, first display.
    """
    slack = 2.0 * clip**2 * lipschitz**2 * float((steps - curvature).sum())
    bound = 0.5 * regularization * norm**2 + online_dimension / (2.0 * float(steps[-1])) + slack
    return 2.0 * bound if as_printed else bound


def sketched_kons_bound(
    norm: float,
    regularization: float,
    curvature: float,
    lipschitz: float,
    rounds: int,
    dimension: float,
    least_probability: float,
) -> float:
    r"""alpha |f|^2 + 2 d_eff(a) log(2 sigma L^2 T / alpha) / (sigma p) with a = alpha / (sigma L^2), with high probability.

    p is `least_probability`, max(gamma, beta min_t tau_{t, t}): at least the floor gamma. A sketch that keeps each
    round with probability p thus may lose up to 1 / p times what the exact learner loses.

    References: [calandriello2017] theorem 3, with the alpha of its proof below T.
    """
    size = dimension * math.log(2.0 * curvature * lipschitz**2 * rounds / regularization)
    return regularization * norm**2 + 2.0 * size / (curvature * least_probability)


# -- the squared loss -------------------------------------------------------------------------------------------------


def ridge_optimum(K: F64, y: F64, regularization: float) -> float:  # K: (n, n), y: (n,)
    """min_f sum (y_t - f(x_t))^2 + a |f|^2 = a y^T (K + a I)^{-1} y.

    For ridge forecasts gamma_t it is also sum (y_t - gamma_t)^2 / (1 + q_t).

    References: [zhdanov2013] theorem 1.
    """
    z = solve_triangular(factor(K, regularization), y, lower=True)
    return regularization * float(z @ z)


def clipped_ridge_bound(norm: float, regularization: float, largest: float, log_det: float) -> float:
    """a |f|^2 + 4 Y^2 log det(I + K / a), for ridge forecasts clipped to |y| <= Y = `largest`.

    References: [zhdanov2013] corollary 1.
    """
    return regularization * norm**2 + 4.0 * largest**2 * log_det


def aar_bound(norm: float, regularization: float, largest: float, log_det: float) -> float:
    """a |f|^2 + Y^2 log det(I + K / a), for the kernel Aggregating Algorithm and |y| <= Y = `largest`.

    References: [vovk2001]; [azoury2001].
    """
    return regularization * norm**2 + largest**2 * log_det


# -- first-order learners ---------------------------------------------------------------------------------------------


def gradient_descent_bound(
    radius: float, lipschitz: float, rounds: int, largest_kernel: float = 1.0, *, step_factor: float | None = None
) -> float:
    """U L sqrt(D T), for gradient descent with the step U / (L sqrt(D T)) and every |f| <= U = `radius`.

    With steps c U / (L sqrt(D t)), c = `step_factor`, and projections to |f| <= U it is (c + 2 / c) U L sqrt(D T).
    L bounds |l'| at the points played, D = `largest_kernel` bounds k(x, x).

    References: [zinkevich2003] theorem 1.
    """
    factor = 1.0 if step_factor is None else step_factor + 2.0 / step_factor
    return factor * radius * lipschitz * math.sqrt(largest_kernel * rounds)
