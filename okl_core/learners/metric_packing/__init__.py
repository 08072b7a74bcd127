"""`metric-packing`: the learner, its config, the phases, the schedule of the work after each, and that work itself."""

from okl_core.learners.metric_packing.metric_packing import MetricPacking

__all__ = ["MetricPacking"]
