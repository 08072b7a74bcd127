"""Experts of a pool that rest: those that have lost nearly all weight play one stretch of rounds in several.

An expert at rest forecasts nothing and learns nothing; it counts as if it had said what the pool says. So a pool with experts
at rest is a pool of experts that follow it at times, and every bound holds to the letter for those: an expert's regret
is over the rounds that it has played. If l(value, y) <= -ln(sum of p_i exp(-eta l(v_i, y)) over the experts awake, their
weights p made to sum to 1) / eta, then the same holds over all experts, those at rest with the loss of the pool.

References: [freund1997].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from okl_core.contract.rng import RoundRng
from okl_core.errors import ReplayDivergence
from okl_core.types import F64, StatePart

EVERY = 16
"""Of the default experts: one that has lost plays one stretch in so many."""
STRETCH = 64
"""Rounds for which an expert plays or rests: a block of the learners on a dictionary."""
FIRST, FIRST_OF_AN_INPUT = 1024, 16
"""Rounds that all experts play, and as many for each input where that is more: one that learns slowly is not judged by its
beginning, and a linear function of 300 inputs is learned slowly."""
LENIENT = 4
"""After these an expert that has lost plays one stretch in so many, and in one more after each FIRST rounds: one that learns
slowly goes on learning. See `stretches_a_turn`."""
LOST = 0.05
"""An expert with less than so much of the largest weight has lost. It wakes in its turn only: the share of all weight that is
given back would wake it long before."""

UNUSUAL = 3.0
"""Standard deviations by which a stretch differs from the mean when all wake: the stream may have changed. A better one tells
it too: where there was only noise, and now there is something to learn, an expert at rest may learn it best."""

REMEMBERED = 4096
"""Rounds that the mean is over, about."""


def stretches_a_turn(t: int, every: int) -> int:
    """After round t an expert that has lost plays one stretch in so many; at most `every`.

    Where FIRST rounds have fewer stretches it grows by doubling: a turn of the longer cycle is one of the shorter, too.
    One more at a time, the cycle would change before all have had their turn, and could pass the same ones over for long.
    """
    stretches = LENIENT + t // FIRST
    if stretches > FIRST // STRETCH:
        stretches = 1 << (stretches.bit_length() - 1)
    return min(every, stretches)


def stretch_left(t: int, every: int, most: int) -> int:
    """Rounds after t before experts may begin or end a rest; at most `most`."""
    return most if every == 1 else min(most, STRETCH - t % STRETCH)


@dataclass(slots=True)
class UsualLoss(StatePart):
    """What the pool lost lately: the mean, the mean square, and the sum over the present stretch."""

    mean: float
    square: float
    stretch: float

    def after(self, t: int, loss: float) -> UsualLoss:
        """With that of round t."""
        rate = max(1.0 / t, 1.0 / REMEMBERED)
        stretch = self.stretch if (t - 1) % STRETCH else 0.0
        mean, square = self.mean, self.square
        return UsualLoss(mean + rate * (loss - mean), square + rate * (loss * loss - square), stretch + loss)

    def has_changed(self) -> bool:
        """After the last round of a stretch: was it worse or better than usual by more than chance explains?"""
        deviation = math.sqrt(max(self.square - self.mean * self.mean, 0.0) / STRETCH)
        return abs(self.stretch / STRETCH - self.mean) > UNUSUAL * deviation


def awake_after(
    t: int, awake: F64, weights: F64, unit_of: NDArray[np.intp], usual: UsualLoss, every: int, dim: int, rng: RoundRng
) -> F64:
    """Which experts play round t + 1, 1.0 or 0.0 each, shape (N,); `awake` is that of round t, the others are as after it.

    `dim`: inputs of the pool.

    Those of a unit, by its number in `unit_of`, have the same turn: what they share is then computed once. A test on weights
    or losses is a choice: it is recorded. Raises ReplayDivergence if all would rest by the choices replayed.
    """
    if every == 1 or t < max(FIRST, FIRST_OF_AN_INPUT * dim) or t % STRETCH:
        return awake
    stretch, least = t // STRETCH, LOST * float(weights.max())
    # The pool may do better than each expert awake: then one at rest, which counts as the pool, leaves all of them behind.
    have_all_lost = float((weights * awake).max()) < least
    if rng.decide(have_all_lost or usual.has_changed()):
        return np.ones_like(awake)
    cycle = stretches_a_turn(t, every)
    each = zip(awake.tolist(), weights.tolist(), unit_of.tolist(), strict=True)
    plays = [(is_awake and rng.decide(weight >= least)) or (stretch + i) % cycle == 0 for is_awake, weight, i in each]
    if not any(plays):
        raise ReplayDivergence(f"round {t}: by the recorded choices all experts of the pool rest")
    return np.array(plays, dtype=np.float64)
