"""Resting experts of a pool: experts that have lost nearly all weight play only one stretch of rounds in several.

A resting expert neither forecasts nor learns; it counts as if its forecast were the pool's. So a pool with resting experts is
a pool of experts that sometimes follow it, and every bound holds exactly for those: the regret to an expert is over the
rounds that it has played. If l(value, y) <= -ln(sum of p_i exp(-eta l(v_i, y)) over the awake experts, with their weights p
normalised) / eta, then the same holds over all experts, with the loss of the pool for resting ones.

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
"""Default of `resting` with the default experts: an expert that has lost plays one in this many stretches."""
STRETCH = 64
"""Rounds for which an expert plays or rests: one block of the learners on a dictionary."""
FIRST, FIRST_OF_AN_INPUT = 1024, 16
"""All experts play the first FIRST rounds, or FIRST_OF_AN_INPUT per input if that is more, so that slow learners are not
judged by their start: a linear function of 300 inputs is learned slowly."""
LENIENT = 4
"""An expert that has lost plays one stretch in this many, plus one for every FIRST rounds so far, so that slow learners keep
learning. See `stretches_a_turn`."""
LOST = 0.05
"""An expert whose weight is below this share of the largest has lost. It wakes only in its turn: the weight given back to all
experts would wake it much earlier."""

UNUSUAL = 3.0
"""Standard deviations between the mean loss and that of a stretch after which all experts wake: the stream may have changed.
A smaller loss counts too: if noise gives way to a pattern, a resting expert may learn it best."""

REMEMBERED = 4096
"""Approximate number of rounds that the mean covers."""


def stretches_a_turn(t: int, every: int) -> int:
    """Return how many stretches make up a cycle after round t, in which an expert that has lost plays one; at most `every`.

    Once a cycle is longer than FIRST rounds, it grows by doubling, so that a turn in the longer cycle is one in the shorter.
    Growing one by one, it would change before every expert has had its turn, and could skip the same experts for long.
    """
    stretches = LENIENT + t // FIRST
    if stretches > FIRST // STRETCH:
        stretches = 1 << (stretches.bit_length() - 1)
    return min(every, stretches)


def stretch_left(t: int, every: int, most: int) -> int:
    """Return the number of rounds after t before experts may begin or end a rest; at most `most`."""
    return most if every == 1 else min(most, STRETCH - t % STRETCH)


@dataclass(slots=True)
class UsualLoss(StatePart):
    """Recent losses of the pool: their mean, their mean square, and their sum over the current stretch."""

    mean: float
    square: float
    stretch: float

    def after(self, t: int, loss: float) -> UsualLoss:
        """Return the statistics updated with the loss of round t."""
        rate = max(1.0 / t, 1.0 / REMEMBERED)
        stretch = self.stretch if (t - 1) % STRETCH else 0.0
        mean, square = self.mean, self.square
        return UsualLoss(mean + rate * (loss - mean), square + rate * (loss * loss - square), stretch + loss)

    def has_changed(self) -> bool:
        """Whether the stretch that has just ended was worse or better than usual by more than chance explains."""
        deviation = math.sqrt(max(self.square - self.mean * self.mean, 0.0) / STRETCH)
        return abs(self.stretch / STRETCH - self.mean) > UNUSUAL * deviation


def awake_after(
    t: int, awake: F64, weights: F64, unit_of: NDArray[np.intp], usual: UsualLoss, every: int, dim: int, rng: RoundRng
) -> F64:
    """Return which experts play round t + 1, 1.0 or 0.0 each, shape (N,); `awake` is for round t, the rest are after it.

    `dim`: number of inputs of the pool.

    Experts of the same unit, by its index in `unit_of`, have the same turn, so their shared work is done once. Tests on
    weights or losses are recorded choices. Raise ReplayDivergence if by the replayed choices all experts would rest.
    """
    if every == 1 or t < max(FIRST, FIRST_OF_AN_INPUT * dim) or t % STRETCH:
        return awake
    stretch, least = t // STRETCH, LOST * float(weights.max())
    # If the pool beats every awake expert, a resting expert, which has the pool's loss, outweighs all of them.
    have_all_lost = float((weights * awake).max()) < least
    if rng.decide(have_all_lost or usual.has_changed()):
        return np.ones_like(awake)
    cycle = stretches_a_turn(t, every)
    each = zip(awake.tolist(), weights.tolist(), unit_of.tolist(), strict=True)
    plays = [(is_awake and rng.decide(weight >= least)) or (stretch + i) % cycle == 0 for is_awake, weight, i in each]
    if not any(plays):
        raise ReplayDivergence(f"round {t}: by the recorded choices all experts of the pool rest")
    return np.array(plays, dtype=np.float64)
