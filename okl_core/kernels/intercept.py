"""The intercept of linear learners."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from okl_core.types import F64, LearnerConfig


class InterceptConfig(LearnerConfig):
    """What every learner of linear functions is given."""

    intercept: bool = Field(default=True, description="Give every input one more coordinate, which is 1.")

    def phi(self, X: F64) -> F64:
        """The features of inputs, shape (..., d)."""
        if not self.intercept:
            return X
        Phi = np.empty((*X.shape[:-1], X.shape[-1] + 1))
        Phi[..., :-1] = X
        Phi[..., -1] = 1.0
        return Phi
