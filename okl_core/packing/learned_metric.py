"""What a learner of the packing kind has for a metric at present."""

from __future__ import annotations

from okl_core.contract.facade import OnlineLearner
from okl_core.errors import StateError
from okl_core.metrics.mahalanobis import Metric
from okl_core.types import F64


def learned_metric(learner: OnlineLearner) -> F64:
    """The metric M that a `packing` or `metric-packing` uses at present, shape (d, d), its largest eigenvalue 1.

    Raises StateError for learners without one.

    Examples
    --------
    >>> from okl_core import create
    >>> learned_metric(create({"kind": "metric-packing"}, dim=2))
    array([[1., 0.],
           [0., 1.]])
    """
    prefix = "packing.metric."
    arrays = {name.removeprefix(prefix): a for name, a in learner.state().items() if name.startswith(prefix)}
    if not arrays:
        raise StateError(f"a learner of kind {learner.spec.kind!r} has no metric")
    return Metric.unpack(arrays).matrix
