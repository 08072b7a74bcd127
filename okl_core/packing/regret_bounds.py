r"""Bounds on the number of centres and on the regret of a packing whose forecasts are means.

The symbols are those of `packing.radius`; |S| is the number of centres after T rounds.

References: [kuzborskij2017] lemma 2, theorem 1 with the constants of its proof.
"""

from __future__ import annotations

import math

import numpy as np

from okl_core.packing.radius import Radius, effective_rank
from okl_core.types import F64


def most_centres(eigenvalues: F64, rounds: int) -> float:
    """Return an upper bound on |S| after T rounds with inputs in the unit ball.

    Parameters
    ----------
    eigenvalues : F64, shape (d,)
        Of the metric, descending from 1.
    rounds : int
        T.
    """
    eps = Radius(eigenvalues).at(rounds)
    roots = np.sqrt(eigenvalues)
    return float(np.prod(8.0 * math.sqrt(2.0) / eps * roots[roots >= eps]))


def regret_bound(eigenvalues: F64, gradients: F64, rounds: int, centres: float) -> float:
    r"""Bound the regret against a differentiable f with values in [0, 1], for truths in [0, 1] and inputs in the unit ball.

        (8 ln(eT) + 1) |S| + 4 sqrt(sum_i g_i^2 / lambda_i) T^(rho_T / (1 + rho_T))

    Parameters
    ----------
    eigenvalues : F64, shape (d,)
        Of the metric M, descending from 1.
    gradients : F64, shape (d,)
        g_i, the largest slopes of f along the eigenvectors of M.
    rounds : int
        T.
    centres : float
        |S|, or `most_centres`.
    """
    rho = effective_rank(eigenvalues, rounds)
    slope = math.sqrt(float(np.sum(gradients**2 / eigenvalues)))
    return balls_bound(rounds, centres) + 4.0 * slope * rounds ** (rho / (1.0 + rho))


def balls_bound(rounds: int, centres: float) -> float:
    """Return the first term of `regret_bound`: the loss of the ball means beyond that of the best constant in each ball.

    The 1 in it covers the rounds that open balls, which the proof leaves out.
    """
    return (8.0 * math.log(math.e * max(1, rounds)) + 1.0) * centres
