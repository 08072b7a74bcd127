r"""A time-uniform comparison of a forecaster with one rival on the same rounds: better, worse, or undecided.

The error of a round is a mistake, 0 or 1, or the squared error of a number. The two are compared by d, the rival's error
minus the forecaster's own. A squared error has no bound, so both are cut: d = min(e_rival^2 / c, 1) - min(e^2 / c, 1), where
c is 9 times a fading mean of the rival's squared errors in earlier rounds only. The price is that cut errors are compared;
if the sums of the uncut errors say the opposite, the result is undecided. `okl_core.monitoring.verdict` handles two rivals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, final

from okl_core.errors import InputError, StateFormatError
from okl_core.monitoring.comparison import SLACK, Comparison, cut
from okl_core.monitoring.verdict import LARGEST, LEVEL, MEMORY, TIMES, UNCOUNTED, State, state_of
from okl_core.types import StatePart


class Outcome(NamedTuple):
    """The result after `rounds` counted rounds; `own` and `rival` are the mean errors in them, None before the first."""

    rounds: int
    own: float | None
    rival: float | None
    state: State
    low: float
    high: float
    """95 % band, valid at all times, for the rival's mean error minus the forecaster's: mistakes, or cut squared errors."""


@final
@dataclass(slots=True)
class Duel(StatePart):
    """The errors of a forecaster and its rival, compared round by round.

    Examples
    --------
    >>> duel = Duel(is_of_numbers=False)
    >>> for t in range(300):
    ...     duel.add(0.0, float(t % 2))
    >>> outcome = duel.outcome()
    >>> outcome.rounds, outcome.own, outcome.rival, outcome.state
    (300, 0.0, 0.5, 'better')
    """

    is_of_numbers: bool
    seen: int = 0
    scale: float = 0.0
    """Fading mean of the rival's squared errors, for numbers."""
    own: float = 0.0
    rival: float = 0.0
    """Sums of the counted errors."""
    against: Comparison = field(default_factory=Comparison)

    def __post_init__(self) -> None:
        """Raise StateFormatError for a state that no errors can lead to."""
        counted = max(self.seen - UNCOUNTED, 0) if self.is_of_numbers else self.seen
        most = counted * LARGEST * (1.0 + SLACK) if self.is_of_numbers else float(counted)
        is_possible = self.seen >= 0 and 0.0 <= self.own <= most and 0.0 <= self.rival <= most
        if not (is_possible and 0.0 <= self.scale <= LARGEST * (1.0 + SLACK) and self.against.count == counted):
            errors = f"errors {self.own} and {self.rival} of {self.seen} rounds, {self.against.count} of them counted"
            raise StateFormatError(f"{errors}, are impossible")

    def add(self, own_error: float, rival_error: float) -> None:
        """Add the errors of one round: 0 or 1, or for numbers squared errors, at least 0, perhaps infinite.

        Raises InputError; the state is then unchanged.
        """
        own, rival = float(own_error), float(rival_error)
        # The condition is negated so that NaN is refused.
        if not (own >= 0.0 and rival >= 0.0 and (self.is_of_numbers or max(own, rival) <= 1.0)):
            raise InputError(
                f"errors of {own} and {rival}; errors of classes are in [0, 1], of numbers at least 0", "y"
            )
        if not self.is_of_numbers:
            self._count(own, rival, 1.0)
            self.seen += 1
            return
        own, rival = min(own, LARGEST), min(rival, LARGEST)
        if self.seen >= UNCOUNTED:
            self._count(own, rival, TIMES * self.scale)
        self.seen += 1
        # Update the scale last: the cut uses that of earlier rounds.
        self.scale += (rival - self.scale) / min(self.seen, MEMORY)

    def outcome(self) -> Outcome:
        """The current result."""
        n = self.against.count
        low, high = self.against.band(LEVEL)
        state = state_of(low, high, self.own, self.rival)
        return Outcome(n, self.own / n if n else None, self.rival / n if n else None, state, low, high)

    def _count(self, own: float, rival: float, scale: float) -> None:
        self.against.add(cut(rival, scale) - cut(own, scale))
        self.own += own
        self.rival += rival
