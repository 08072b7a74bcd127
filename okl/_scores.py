"""Probabilities and scores in the form that classifiers return: for the known labels, summing to one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from okl_core.types import F64


def probabilities_of(forecast: Sequence[float], K: int) -> F64:
    """Probabilities of K labels, shape (K,), from a forecast of more or fewer.

    Labels that the forecast did not know get 0; mass that it reserved for labels beyond the K-th is redistributed.
    """
    p = np.zeros(K)
    p[: len(forecast)] = forecast[:K]
    return p / p.sum() if p.sum() > 0.0 else np.full(K, 1.0 / max(1, K))


def decision_of(p: F64) -> F64:  # (K,)
    """Log-probabilities, shape (K,); for two labels the log-odds of the second, shape (); for fewer 0."""
    scores = np.log(np.maximum(p, np.finfo(np.float64).tiny))
    return scores if len(scores) > 2 else np.asarray(scores[-1] - scores[0] if len(scores) else 0.0)
