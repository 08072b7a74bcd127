r"""Adaptive conformal prediction: a threshold on the scores of forecasts that is exceeded in a share alpha of the rounds.

A score measures how wrong a forecast was: |y - forecast| for a number, and 1 - p for a class, where p is the forecast
probability of the true label. Each forecast is issued with the current threshold q, and counts as *missed* if its score
turns out above that q. The current q is a quantile of the last scores, at a level that adapts to the misses, so that no
assumption on the stream is needed.

| symbol | meaning                                                                                       |
|--------|-----------------------------------------------------------------------------------------------|
| alpha  | 1 - level, the share of rounds that may be missed                                             |
| E      | misses - alpha n, with n the rounds learned: misses beyond the promise (`excess`)             |
| lag    | of a round: rounds learned between its forecast and its own truth; 0 if truths are not late   |
| m      | max(1, alpha (1 + mean lag)): expected misses among forecasts whose truths are pending        |
| a      | alpha (1 - E / (5 m)), the share to miss now: alpha if the promise is kept exactly            |
| W      | scores kept, 10 / alpha                                                                       |

q is the (1 - a) (k + 1)-th smallest of the k scores kept, with linear interpolation. Above the largest score, q rises
linearly to twice that score at a = 0, then doubles once per 4 m misses, and after 5 doublings it is infinite. Below the
smallest score, q falls linearly to 0, which it reaches at a = 1.

**Guarantee.** With l the longest lag, M = max(1, alpha (1 + l)), for every stream of scores and after every n rounds,

    misses <= alpha n + 25 M + (1 - alpha) (1 + l),
    misses >= alpha n - 5 M (1 - alpha) / alpha - alpha (1 + l),

where the second n leaves out the rounds with a score of 0 at a q of 0: they cannot be missed, and do not count in E. If no
score is above R times the largest of the scores kept when its forecast was issued, 25 M may be replaced by
5 M + 4 M max(log2(R / 2), 0). The proof is that of theorem 11 in docs/theorems.md.

This is the level of [gibbs2021], a_{t+1} = a_t + gamma (alpha - miss_t), gamma = alpha / (5 m), written as a sum; for a
constant gamma the two are the same. There, the threshold is infinite as soon as a < 0; here only after five doublings, which
costs at most 20 M misses. gamma shrinks with the lags: otherwise the level would oscillate, as any control with a delay does.

References: [gibbs2021] (2) and proposition 4.1; [angelopoulos2023] for quantiles tracked without an assumption.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from pydantic import Field

from okl_core.contract.state import unpack
from okl_core.errors import InputError, NonFiniteError, StateFormatError
from okl_core.types import F64, REALS, Interval, Parameters, StatePart, Stored

PATIENCE = 5.0
"""Excess misses, divided by m, at which q exceeds all scores kept. With fewer, q oscillates; with more, it adapts late."""
MISSES_PER_DOUBLING = 4.0
"""Excess misses per doubling of q, divided by m."""
DOUBLINGS = 5
"""Doublings before q becomes infinite. They start at twice the largest score kept, and so reach 64 times that score."""
KEPT = 10.0
"""Scores kept, times alpha: enough for the quantile, and few enough that an old scale is soon forgotten."""


@final
@dataclass(slots=True)
class ConformalState(StatePart):
    """The first min(rounds, W) of the W `scores` are known; `counted` leaves out rounds with a score of 0 at a q of 0."""

    rounds: int
    counted: int
    misses: int
    mean_lag: float
    longest_lag: int
    scores: F64


@final
class Conformal(Parameters):
    """Thresholds that scores exceed in a share 1 - `level` of the rounds, with the symbols of the module's table.

    Examples
    --------
    >>> conformal = Conformal(level=0.9)
    >>> state = conformal.init()
    >>> conformal.threshold(state)  # nothing is known yet
    inf
    >>> for t in range(1000):
    ...     conformal.learn(state, score=abs(math.sin(t)), issued=conformal.threshold(state))
    >>> state.misses, interval(20.0, round(conformal.threshold(state), 2))
    (99, (19.02, 20.98))
    """

    level: float = Field(
        default=0.9, ge=0.5, le=0.99, description="Share of the rounds whose truth the interval is to hold."
    )

    @property
    def alpha(self) -> float:
        """1 - level, rounded to 12 digits, so that level 0.9 gives exactly 0.1."""
        return round(1.0 - self.level, 12)

    @property
    def kept(self) -> int:
        """W, the number of scores kept: 20 to 1,000."""
        return math.ceil(KEPT / self.alpha)

    def init(self) -> ConformalState:
        """The state before the first round. Its size never grows."""
        return ConformalState(0, 0, 0, 0.0, 0, np.zeros(self.kept))

    def unpack(self, arrays: Mapping[str, Stored]) -> ConformalState:
        """The state from the arrays of `okl_core.contract.state.pack`. Raises StateFormatError."""
        state = unpack(ConformalState, arrays)
        counts = state.misses, state.counted, state.rounds
        lags = 0.0, state.mean_lag, float(state.longest_lag)
        scores = state.scores
        if not 0 <= counts[0] <= counts[1] <= counts[2] or not lags[0] <= lags[1] <= lags[2] < math.inf:
            raise StateFormatError(f"misses, rounds counted and rounds {counts} with lags {lags[1:]} are impossible")
        if scores.shape != (self.kept,) or not (np.isfinite(scores) & (scores >= 0.0)).all():
            raise StateFormatError(f"a level of {self.level} keeps {self.kept} scores, finite and not negative")
        return state

    def excess(self, state: ConformalState) -> float:
        """E, the misses beyond the promise; negative if there were fewer."""
        return state.misses - self.alpha * state.counted

    def threshold(self, state: ConformalState) -> float:
        """q, at least 0, to be issued with the next forecast; infinite before the first round is learned. O(W log W)."""
        count = min(state.rounds, self.kept)
        if not count:
            return math.inf
        m = self._on_their_way(state.mean_lag)
        surplus = self.excess(state) / (PATIENCE * m)
        place = (1.0 - self.alpha * (1.0 - surplus)) * (count + 1)
        if place <= 0.0:
            return 0.0
        scores = np.sort(state.scores[:count])
        if place >= count:
            doublings = max(surplus - 1.0, 0.0) * (PATIENCE / MISSES_PER_DOUBLING)
            if doublings > DOUBLINGS:
                return math.inf
            return scores.item(-1) * 2.0 ** (min(place - count, 1.0) + doublings)
        below = int(place)
        lower = scores.item(below - 1) if below else 0.0
        return lower + (place - below) * (scores.item(below) - lower)

    def learn(self, state: ConformalState, score: float, issued: float, lag: int = 0) -> None:
        """Carry a round into the state when its truth is known.

        Parameters
        ----------
        score : float
            Score of the issued forecast: finite, at least 0.
        issued : float
            Threshold that was issued with the forecast, perhaps infinite.
        lag : int
            Rounds learned between the forecast and its truth.

        Raises
        ------
        NonFiniteError, InputError; the state is then unchanged.

        Notes
        -----
        A replay must pass the recorded numbers, since rounding may flip the outcome of score > issued.
        """
        if not math.isfinite(score) or math.isnan(issued):
            raise NonFiniteError(f"a score of {score} at a threshold of {issued}; the score must be finite", "y")
        if score < 0.0 or issued < 0.0 or lag < 0:
            raise InputError(f"score {score}, threshold {issued} and lag {lag} must not be negative", "y")
        state.scores[state.rounds % self.kept] = score
        state.rounds += 1
        state.longest_lag = max(state.longest_lag, lag)
        # Clip the mean to the longest lag, which rounding might exceed.
        mean = state.mean_lag + (lag - state.mean_lag) / min(state.rounds, self.kept)
        state.mean_lag = min(max(mean, 0.0), float(state.longest_lag))
        if score > 0.0 or issued > 0.0:
            state.counted += 1
            state.misses += int(score > issued)

    def describe(self, state: ConformalState) -> dict[str, float]:
        """`rounds`, `misses`, their `excess`, and the `bound` that the excess never exceeds."""
        bound = excess_bound(self.level, state.longest_lag)
        return {"rounds": state.rounds, "misses": state.misses, "excess": self.excess(state), "bound": bound}

    def _on_their_way(self, lag: float) -> float:
        return max(1.0, self.alpha * (1.0 + lag))


def excess_bound(level: float, longest_lag: int = 0) -> float:
    """Upper bound on misses - (1 - level) rounds for every stream of scores: the guarantee of the module.

    Examples
    --------
    >>> excess_bound(0.9), excess_bound(0.9, longest_lag=19)
    (25.9, 68.0)
    """
    alpha, pending = Conformal(level=level).alpha, 1.0 + longest_lag
    most = PATIENCE + MISSES_PER_DOUBLING * DOUBLINGS
    return most * max(1.0, alpha * pending) + (1.0 - alpha) * pending


def number_score(value: float, y: float) -> float:
    """|y - value| for finite numbers, clipped to the largest float.

    Examples
    --------
    >>> number_score(2.0, -1.0)
    3.0
    """
    return min(abs(y - value), sys.float_info.max)


def class_score(probability: float) -> float:
    """1 - p, where p is the forecast probability of the true label."""
    return min(max(1.0 - probability, 0.0), 1.0)


def interval(value: float, threshold: float, within: Interval = REALS) -> Interval:
    """[value - q, value + q], cut to `within`, the range of truths; an end is infinite if q and that end of `within` are.

    It contains every truth in `within` whose score is at most q.

    Examples
    --------
    >>> interval(3.0, 2.0), interval(3.0, 9.0, (0.0, 10.0)), interval(3.0, math.inf, (0.0, math.inf))
    ((1.0, 5.0), (0.0, 10.0), (0.0, inf))
    """
    low, high = within
    return min(max(value - threshold, low), high), max(min(value + threshold, high), low)


def prediction_set(probabilities: Sequence[float], threshold: float) -> tuple[int, ...]:
    """The classes with 1 - p <= q in ascending order, or if there are none, the most probable class, the lowest on ties.

    Examples
    --------
    >>> prediction_set((0.2, 0.7, 0.1), 0.8), prediction_set((0.2, 0.7, 0.1), 0.1)
    ((0, 1), (1,))
    """
    top = max(probabilities)
    held = [k for k, p in enumerate(probabilities) if class_score(p) <= threshold]
    return tuple(held) or (list(probabilities).index(top),)
