"""Many classes, one learner of two labels for each."""

from okl_core.learners.one_vs_rest.one_vs_rest import OneVsRest

__all__ = ["OneVsRest"]
