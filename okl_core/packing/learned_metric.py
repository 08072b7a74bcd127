"""The metric of a learner that packs, to look at: its first eigenvectors are the directions in which the truth varies."""

from __future__ import annotations

from okl_core.contract.facade import OnlineLearner
from okl_core.contract.state import part_of
from okl_core.errors import StateError
from okl_core.metrics.mahalanobis import Metric
from okl_core.types import F64

PART = "packing.metric"
"""Its arrays in the state of `packing` and `metric-packing`."""


def learned_metric(learner: OnlineLearner) -> F64:
    """The metric that a learner packs with at present.

    Parameters
    ----------
    learner : OnlineLearner
        Of kind `packing`, whose metric is given, or `metric-packing`, which learns it.

    Returns
    -------
    F64, shape (d, d)
        M, its largest eigenvalue 1.

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
