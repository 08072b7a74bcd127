"""The intercept of linear learners: an extra feature that is 1 for every input."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from okl_core.types import F64, LearnerConfig

Intercept = Annotated[bool, Field(description="Give every input one more coordinate, which is 1.")]


def with_intercept(X: F64) -> F64:
    """Append a coordinate of 1 to inputs of shape (..., d): shape (..., d + 1)."""
    Phi = np.empty((*X.shape[:-1], X.shape[-1] + 1))
    Phi[..., :-1] = X
    Phi[..., -1] = 1.0
    return Phi


class InterceptConfig(LearnerConfig):
    """The parameter shared by all learners of linear functions."""

    intercept: Intercept = True

    def phi(self, X: F64) -> F64:
        """Return the features of the inputs X, shape (..., d): X itself, or X with a last column of ones."""
        return with_intercept(X) if self.intercept else X
