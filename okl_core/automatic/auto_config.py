"""The parameters of `auto`."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from okl_core.automatic.evidence import fit
from okl_core.automatic.regressors import LIMIT, Regressors
from okl_core.automatic.relevance_kernel import RelevanceKernel
from okl_core.errors import ShapeError
from okl_core.types import F64, MAX_CLASSES, LearnerConfig

EVIDENCE = "evidence"


class AutoConfig(LearnerConfig):
    """Parameters of auto."""

    truth: Literal["numbers", "classes"] = Field(default="classes", description="What it learns.")
    classes: int | None = Field(
        default=None,
        ge=2,
        le=MAX_CLASSES,
        description="K: truths are 0 to K - 1. By default K grows: it is the number of classes seen so far.",
    )
    relevance: RelevanceKernel | Literal["evidence"] = Field(
        default=EVIDENCE,
        description="Which coordinates matter, and how smoothly; `evidence`: what the first rounds make most likely.",
    )
    budget: int = Field(default=200, ge=1, le=5000, description="Stored points at most.")
    half_life: int = Field(
        default=1000,
        ge=8,
        description="Rounds in which the weight of a past round halves, in the regressions that forget.",
    )
    window: int = Field(
        default=1000, ge=1, le=100_000, description="Last rounds among which neighbours are looked for."
    )

    @model_validator(mode="after")
    def _lists_are_even(self) -> Self:
        if self.relevance != EVIDENCE and not self.relevance.has_even_lists:
            # Of the whole config: at `relevance` it would be mixed with what is said of those that are no kernel.
            raise ValueError("relevance: `smooth`, `steps` and `pairs` each have one number per input")
        return self

    def waiting(self) -> list[tuple[tuple[str, ...], str]]:
        return [(("relevance",), EVIDENCE)] if self.relevance == EVIDENCE else []

    def resolved(self, X: F64, y: F64 | None = None) -> Self:
        if self.relevance != EVIDENCE:
            return self
        if y is None or y.ndim != 1:
            raise ShapeError("the evidence for a kernel needs the truth of each row", "y")
        if self.truth == "classes":
            Y = np.where(y[:, None] == np.unique(y), 1.0, 0.0)
        else:
            largest = float(np.abs(y - y[:1]).max(initial=0.0))
            Y = (y - y[:1])[:, None] / (largest if largest > 0.0 else 1.0)
        return self.model_copy(update={"relevance": fit(np.clip(X, -LIMIT, 1.0 + LIMIT), Y)})

    @property
    def growing(self) -> bool:
        """Whether the number of classes grows."""
        return self.truth == "classes" and self.classes is None

    @property
    def first_truths(self) -> int:
        """Number of truth columns before the first round."""
        return 1 if self.truth == "numbers" else self.classes or 0

    @cached_property
    def regressors(self) -> Regressors:
        assert self.relevance != EVIDENCE
        return Regressors(self.relevance, self.budget, self.half_life, self.window, self.truth == "numbers")
