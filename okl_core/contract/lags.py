"""Lagged truths: the last k truths that a learner has learned, newest first, padded with zeros at the start.

A learner with lags has d + k inputs: x followed by the lags. `OnlineLearner` keeps the lags, so the algorithm does not
know of them. Arrays of lags are never written to, so they can be shared.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from okl_core.types import F64

MAX_LAGS = 64

LARGEST_TRUTH = 1e150
"""Largest truth accepted with lags: a truth whose square overflows would make the next k inputs invalid."""


def first_lags(k: int) -> F64:
    """The lags of the first round, shape (k,)."""
    return _frozen(np.zeros(k))


def next_lags(lags: F64, y: float) -> F64:
    """The lags after the truth y, shape (k,)."""
    moved = np.empty_like(lags)
    moved[0] = y
    moved[1:] = lags[:-1]
    return _frozen(moved)


def lag_rows(lags: F64, y: F64) -> F64:
    """The lags before each of the truths y, shape (n,), and after the last: shape (n + 1, k).

    `lags` are those before the first truth.

    Examples
    --------
    >>> lag_rows(np.zeros(2), np.array([1.0, 2.0, 3.0]))
    array([[0., 0.],
           [1., 0.],
           [2., 1.],
           [3., 2.]])
    """
    return sliding_window_view(np.concatenate((lags[::-1], y)), len(lags))[:, ::-1]


def kept_lags(lags: F64) -> F64:
    """A read-only copy."""
    return _frozen(np.array(lags, dtype=np.float64, order="C"))


def _frozen(lags: F64) -> F64:
    lags.setflags(write=False)
    return lags
