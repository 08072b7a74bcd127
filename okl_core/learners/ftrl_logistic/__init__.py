"""`ftrl-logistic`: the learner, and the leader that it follows."""

from okl_core.learners.ftrl_logistic.ftrl_logistic import FtrlLogistic

__all__ = ["FtrlLogistic"]
