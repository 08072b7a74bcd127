"""Inspection of a packing learner's metric, whose leading eigenvectors are the directions in which the truth varies."""

from __future__ import annotations

from okl_core.contract.facade import OnlineLearner
from okl_core.contract.state import part_of
from okl_core.errors import StateError
from okl_core.metrics.mahalanobis import Metric
from okl_core.types import F64

PART = "packing.metric"
"""Prefix of the metric's arrays in the state of `packing` and `metric-packing`."""


def learned_metric(learner: OnlineLearner) -> F64:
    """Return the current metric of a packing learner.

    Parameters
    ----------
    learner : OnlineLearner
        Of kind `packing`, whose metric is given, or `metric-packing`, which learns its metric.

    Returns
    -------
    F64, shape (d, d)
        M, scaled to a largest eigenvalue of 1.

    Raises
    ------
    StateError
        If the learner is of another kind.

    Examples
    --------
    >>> from okl_core import create
    >>> learned_metric(create({"kind": "metric-packing"}, dim=2))
    array([[1., 0.],
           [0., 1.]])
    """
    arrays = part_of(learner.state(), PART)
    if not arrays:
        raise StateError(f"a learner of kind {learner.spec.kind!r} has no metric")
    return Metric.unpack(arrays).matrix
