"""Units of a pool that rest: those that have lost nearly all weight play one stretch of rounds in several.

A unit at rest forecasts nothing and learns nothing; its experts count as if they had said what the pool says. So a pool with
units at rest is a pool of experts that follow it at times, and every bound holds to the letter for those: an expert's regret
is over the rounds that it has played. If l(value, y) <= -ln(sum of p_i exp(-eta l(v_i, y)) over the experts awake, their
weights p made to sum to 1) / eta, then the same holds over all experts, those at rest with the loss of the pool.

References: [freund1997].
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from okl_core.contract.rng import RoundRng
from okl_core.types import F64

STRETCH = 64
"""Rounds for which a unit plays or rests: a block of the learners on a dictionary."""
FIRST = 1024
"""Rounds that all units play: one that learns slowly is not judged by its beginning."""
LOST = 0.02
"""A unit with less than so much of the largest weight of a unit has lost."""

RestingStretches = Annotated[
    int,
    Field(ge=1, le=64, description="Experts without weight play one stretch of 64 rounds in so many; 1: none rests."),
]


def stretch_left(t: int, every: int, most: int) -> int:
    """Rounds after t before units may begin or end a rest; at most `most`."""
    return most if every == 1 else min(most, STRETCH - t % STRETCH)


def awake_after(t: int, awake: F64, weights: F64, every: int, rng: RoundRng) -> F64:
    """Which units play round t + 1, 1.0 or 0.0 each, shape (units,); `awake` is that of round t, `weights` theirs after it.

    A test on weights is a choice: it is recorded.
    """
    if every == 1 or t < FIRST or t % STRETCH:
        return awake
    stretch, least = t // STRETCH, LOST * float(weights.max())
    plays = [rng.decide(weight >= least) or (stretch + i) % every == 0 for i, weight in enumerate(weights.tolist())]
    return np.array(plays, dtype=np.float64)
