r"""A time-uniform comparison of a session with the trivial forecasters beside it: better, worse, or undecided.

The error of a round is a mistake, 0 or 1, or the squared error of a number. Each trivial forecaster is compared by d, its
error minus that of the session. Both bands hold jointly with 95 %, so the better of the two may be chosen afterwards.
A squared error has no bound, so it is cut: d = min(e_plain^2 / c, 1) - min(e^2 / c, 1), where c is 9 times a fading mean of
that trivial forecaster's squared errors in earlier rounds only. The price is that cut errors are compared; if the root mean
squared errors say the opposite, the result is undecided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, final

import numpy as np

from okl_core.errors import InputError, NonFiniteError, StateFormatError
from okl_core.monitoring.comparison import SLACK, Comparison, cut, cuts, running
from okl_core.monitoring.plain import CLASS_NAMES, NUMBER_NAMES, PlainValues
from okl_core.types import F64, StatePart

LEVEL = 0.95
TIMES, MEMORY = 9.0, 128
"""The cut is at TIMES the fading mean, that is at three typical errors of the rival; the mean fades over MEMORY rounds."""
UNCOUNTED = 16
"""Rounds from which the first scale is found; they are not counted."""
LARGEST = 1e290
"""Upper limit to which squared errors are clipped, so that their sum stays finite."""

State = Literal["better", "worse", "undecided"]


class Judgement(NamedTuple):
    """The result after `rounds` counted rounds."""

    rounds: int
    rival: str
    """The trivial forecaster with the smaller error so far."""
    gain: float | None
    """1 - error / rival's error: mistake rates, or root mean squared errors. None if the rival has made no error."""
    state: State
    low: float
    high: float
    """95 % band, valid at all times, for the rival's mean error minus the session's: mistakes, or cut squared errors."""


@final
@dataclass(slots=True)
class Verdict(StatePart):
    """The errors of a session, compared with those of both trivial forecasters.

    Examples
    --------
    >>> verdict = Verdict(is_of_numbers=False)
    >>> for t in range(300):
    ...     verdict.add(0.0, issued=(0.0, 1.0), truth=t % 2)
    >>> judgement = verdict.judgement()
    >>> judgement.rival, judgement.gain, judgement.state
    ('majority', 1.0, 'better')
    """

    is_of_numbers: bool
    seen: int = 0
    scale_of_first: float = 0.0
    scale_of_second: float = 0.0
    """Fading means of the trivial forecasters' squared errors, for numbers."""
    own: float = 0.0
    first: float = 0.0
    second: float = 0.0
    """Sums of the errors of the session and of the two trivial forecasters."""
    against_first: Comparison = field(default_factory=Comparison)
    against_second: Comparison = field(default_factory=Comparison)

    def __post_init__(self) -> None:
        """Raise StateFormatError for a state that no errors can lead to."""
        counted = max(self.seen - UNCOUNTED, 0) if self.is_of_numbers else self.seen
        most = counted * LARGEST * (1.0 + SLACK) if self.is_of_numbers else float(counted)
        sums, scales = (self.own, self.first, self.second), (self.scale_of_first, self.scale_of_second)
        if (
            self.seen < 0
            or not all(0.0 <= one <= most for one in sums)
            or not 0.0 <= min(scales) <= max(scales) <= LARGEST * (1.0 + SLACK)
        ):
            raise StateFormatError(f"errors {sums} of {self.seen} rounds at scales of {scales} are impossible")
        if not self.against_first.count == self.against_second.count == counted:
            raise StateFormatError(f"{self.against_first.count} and {self.against_second.count} rounds of {counted}")

    def add(self, own_error: float, issued: PlainValues | Sequence[float], truth: float) -> None:
        """Add a round whose truth is known.

        Parameters
        ----------
        own_error : float
            Error of the session's forecast: 0 or 1; for numbers the squared error, at least 0, perhaps infinite.
        issued : pair of floats
            The trivial forecasts at the time when the session's forecast was issued.
        truth : float

        Raises
        ------
        NonFiniteError, InputError; the state is then unchanged.
        """
        # NumPy scalars would stay in the state and be slow.
        own_error, first, second, truth = float(own_error), float(issued[0]), float(issued[1]), float(truth)
        if math.isnan(own_error) or not (math.isfinite(first) and math.isfinite(second) and math.isfinite(truth)):
            raise NonFiniteError(f"an error of {own_error} and forecasts {issued} for a truth of {truth}", "y")
        if own_error < 0.0 or (own_error > 1.0 and not self.is_of_numbers):
            raise InputError(f"an error of {own_error}; errors of classes are in [0, 1], of numbers at least 0", "y")
        if not self.is_of_numbers:
            self._count(own_error, float(first != truth), float(second != truth), 1.0, 1.0)
            self.seen += 1
            return
        first, second = _squared(first - truth), _squared(second - truth)
        if self.seen >= UNCOUNTED:
            self._count(
                min(own_error, LARGEST), first, second, TIMES * self.scale_of_first, TIMES * self.scale_of_second
            )
        # Update the scales last: the cut uses those of earlier rounds.
        self._fade(first, second)

    def run(self, own_errors: F64, issued: F64, truths: F64) -> None:
        """Add rounds in order, with arguments of shapes (n,), (n, 2) and (n,), bit for bit as by `add`.

        Raises NonFiniteError, InputError; the state is then unchanged.
        """
        if np.isnan(own_errors).any() or not (np.isfinite(issued).all() and np.isfinite(truths).all()):
            raise NonFiniteError("an error is NaN, or a forecast or truth is not finite", "y")
        if (own_errors < 0.0).any() or (not self.is_of_numbers and (own_errors > 1.0).any()):
            raise InputError("an error is out of range; errors of classes are in [0, 1], of numbers at least 0", "y")
        if not self.is_of_numbers:
            wrong = (issued != truths[:, None]).astype(np.float64)
            # At most 1, the errors are not cut.
            self._count_rows(own_errors, wrong, wrong.T - own_errors)
            self.seen += len(truths)
            return
        with np.errstate(over="ignore"):
            squares = np.minimum((issued - truths[:, None]) ** 2, LARGEST)
        scales = np.empty((2, len(truths)))
        skipped = min(max(UNCOUNTED - self.seen, 0), len(truths))
        for i, (first, second) in enumerate(squares.tolist()):
            scales[0, i], scales[1, i] = self.scale_of_first, self.scale_of_second
            self._fade(first, second)
        counted = slice(skipped, None)
        own, squares, scales = np.minimum(own_errors[counted], LARGEST), squares[counted], TIMES * scales[:, counted]
        self._count_rows(own, squares, cuts(squares.T, scales) - cuts(own, scales))

    def judgement(self) -> Judgement:
        """The current result."""
        names = NUMBER_NAMES if self.is_of_numbers else CLASS_NAMES
        is_first = self.first <= self.second
        rival, against = (self.first, self.against_first) if is_first else (self.second, self.against_second)
        # Each of the two bands gets half of the error probability.
        low, high = against.band((1.0 + LEVEL) / 2.0)
        state = state_of(low, high, self.own, rival)
        return Judgement(against.count, names[not is_first], self._gain(rival), state, low, high)

    def _count(self, own: float, first: float, second: float, c: float, c_of_second: float) -> None:
        self.against_first.add(cut(first, c) - cut(own, c))
        self.against_second.add(cut(second, c_of_second) - cut(own, c_of_second))
        self.own += own
        self.first += first
        self.second += second

    def _count_rows(self, own: F64, rivals: F64, gains: F64) -> None:
        """Count n rounds: own errors, shape (n,), errors of both rivals, shape (n, 2), and what was gained, shape (2, n)."""
        self.against_first.run(gains[0])
        self.against_second.run(gains[1])
        self.own = running(self.own, own).item(-1)
        self.first = running(self.first, rivals[:, 0]).item(-1)
        self.second = running(self.second, rivals[:, 1]).item(-1)

    def _fade(self, first: float, second: float) -> None:
        self.seen += 1
        share = 1.0 / min(self.seen, MEMORY)
        self.scale_of_first += share * (first - self.scale_of_first)
        self.scale_of_second += share * (second - self.scale_of_second)

    def _gain(self, rival: float) -> float | None:
        if rival == 0.0:
            return None
        if self.is_of_numbers:
            return 1.0 - math.sqrt(self.own) / math.sqrt(rival)
        return 1.0 - self.own / rival


def state_of(low: float, high: float, own: float, rival: float) -> State:
    """The state from the band for the rival's error minus the own error; undecided if the uncut errors contradict it."""
    if low > 0.0 and own < rival:
        return "better"
    return "worse" if high < 0.0 and own > rival else "undecided"


def _squared(error: float) -> float:
    return min(error * error, LARGEST)
