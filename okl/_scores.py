"""Probabilities and scores as classifiers have them: of the labels that there are, and summing to one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


def probabilities_of(told: Sequence[float], K: int) -> F64:
    """Of K labels, shape (K,): what was told of the first of them, 0 for the others, without what was left for new ones."""
    p = np.zeros(K)
    p[: len(told)] = told[:K]
    return p / p.sum() if p.sum() > 0.0 else np.full(K, 1.0 / max(1, K))


def decision_of(p: F64) -> F64:  # (K,)
    """The logarithms, shape (K,); of two labels what the second has over the first, shape (); 0 of fewer."""
    scores = np.log(np.maximum(p, np.finfo(np.float64).tiny))
    return scores if len(scores) > 2 else np.asarray(scores[-1] - scores[0] if len(scores) else 0.0)
