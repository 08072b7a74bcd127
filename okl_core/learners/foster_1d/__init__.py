"""`foster-1d`: the learner, and the mixture of slopes that it forecasts with."""

from okl_core.learners.foster_1d.foster_1d import Foster1d

__all__ = ["Foster1d"]
