r"""An alarm for a rise of the error, with probability at most alpha of any false alarm in a segment.

The alarm bets on the errors of a segment, cut to x_i in [0, 1]: if errors become likelier than they were on average, the
bets win. This is an e-detector [shin2023] whose baseline is not given, but bounded from the past.

| symbol   | meaning                                                                                            |
|----------|----------------------------------------------------------------------------------------------------|
| mu_i     | mean of x_i given all earlier errors                                                               |
| M_s      | mean of mu_1 ... mu_s                                                                              |
| U_s      | mean of x_1 ... x_s, plus u(V_s) / s at alpha / 2 (`okl_core.monitoring.bands`); every 8 rounds    |
| y_j, m_j | mean of the four x_i of block j; the smallest U_s of s before the block, at most 1                 |
| lambda_k | 0.9 2^-k, k = 0 ... 7: the share of the wealth that is bet, each optimal for one size of rise      |
| w_j      | 1 / ((b + 1) (b + 2) 2^b), b = floor(log2 j): new wealth at the start of block j; sums to 1        |
| E_k      | (1 + lambda_k (y_j / m_j - 1)) (E_k + w_j), block by block, starting from 0                        |

The alarm is raised when the mean of the eight E_k reaches 2 / alpha.

**Guarantee.** If no mu_i is above M_{i-1}, the probability of any alarm in the segment is at most alpha. The condition holds
for independent and equally likely errors, and if the conditional mean only falls; there is no other assumption.

Proof. M_i = ((i - 1) M_{i-1} + mu_i) / i <= M_{i-1}, so mu_i <= M_{i-1} <= M_s for all s < i. With probability at least
1 - alpha / 2, M_s <= U_s at all s; then mu_i <= m_j in all rounds i of all blocks j. Let tau be the first i with mu_i > m_j;
it is known before x_i is. Within a block each round adds lambda_k (x_i / m_j - 1) / 4 of the wealth at its start: at most a
quarter is lost, and before tau the expected gain is at most 0. So the mean of the E_k plus the wealth still to be added,
1 - w_1 - ... - w_j, stopped before tau, is a nonnegative supermartingale that starts at 1. By Ville's inequality it reaches
2 / alpha with probability at most alpha / 2, and tau is finite with probability at most alpha / 2.

Errors in clusters, such as those of a Markov chain, are not covered: their mu_i goes up and down, and an alarm means that
errors have been likelier for a while. They are the reason why four rounds form one bet: bets on single rounds would notice
a large rise after half as many rounds, but most clusters too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

import numpy as np

from okl_core.errors import InputError, NonFiniteError, StateFormatError
from okl_core.monitoring.bands import boundaries, boundary
from okl_core.monitoring.comparison import SLACK, cut, cuts, running
from okl_core.monitoring.verdict import LARGEST
from okl_core.types import F64, StatePart

ALPHA = 0.01
STAKES = tuple(0.9 * 2.0**-k for k in range(8))
"""With a stake of 1, a single block without an error would lose everything; the smallest is for rises of a hundredth."""
_STAKES: F64 = np.array(STAKES)[:, None]
BLOCK, EVERY = 4, 8
"""Rounds per bet, and rounds between two updates of the bound U; the latter is a multiple of the former."""
FEW, AT_ONCE = 64, 8192
"""Fewest and most rounds settled together."""
BLOCKS = 256
"""Most blocks whose factors are multiplied together; 0.1 to this power does not underflow."""
TIMES, UNCOUNTED = 16.0, 32
"""Squared errors are cut at TIMES the mean of the segment's first UNCOUNTED ones, which are not counted."""


class Rise(NamedTuple):
    """A rise of the error, noticed in round `t`, most likely since round `since`; rounds are numbered from 1."""

    t: int
    before: float
    """Mean error in the segment before round `since`; for numbers, the cut squared error."""
    after: float
    """Mean error from round `since` on; slightly too high, since `since` is chosen to maximise the wealth."""
    since: int


@final
class Wealth:
    """The wealth of each stake's bets, as lists of 8 floats, which are faster per round than arrays.

    `total` is E_k, over all starts, and `best` the wealth from the best start. `start` is the number of rounds of the segment
    before the best start, and `before` the sum of their errors.
    """

    __slots__ = ("before", "best", "start", "total")

    def __init__(self) -> None:
        nothing = [0.0] * len(STAKES)
        self.total, self.best, self.start, self.before = list(nothing), list(nothing), list(nothing), list(nothing)

    def bet(self, gain: float, start: float, before: float) -> float:
        """Settle the bets of a block and return the sum of the E_k.

        `gain` is y_j / m_j - 1; `start` and `before` are the number and the sum of the errors before the block.
        """
        b = (int(start) // BLOCK + 1).bit_length() - 1
        new, wealth, total, best = 1.0 / ((b + 1) * (b + 2) << b), 0.0, self.total, self.best
        for k, share in enumerate(STAKES):
            factor = 1.0 + share * gain
            total[k] = now = factor * (total[k] + new)
            wealth += now
            if best[k] < new:
                best[k], self.start[k], self.before[k] = new, start, before
            best[k] *= factor
        return wealth

    def bet_rows(self, gains: F64, starts: F64, befores: F64) -> F64:
        """Settle n blocks in order, n > 0, with arguments of shape (n,) each; equals `bet` of each, up to rounding."""
        slices = [slice(first, first + BLOCKS) for first in range(0, len(gains), BLOCKS)]
        return np.concatenate([self._bet_rows(gains[one], starts[one], befores[one]) for one in slices])

    def _bet_rows(self, gains: F64, starts: F64, befores: F64) -> F64:
        """Settle 1 to BLOCKS blocks.

        With P_j the product of the first j factors, E_j = P_j (E_0 + sum_{i <= j} w_i / P_{i-1}).
        """
        # j as a float has the exponent 1 + floor(log2 j).
        b = np.frexp(starts / BLOCK + 1.0)[1] - 1
        parts = np.empty((len(STAKES), len(gains) + 1))
        # Wealth overflows only long after the alarm.
        with np.errstate(over="ignore"):
            grown = np.multiply.accumulate(1.0 + _STAKES * gains, axis=1)
            parts[:, 1:] = 1.0 / np.ldexp((b + 1.0) * (b + 2.0), b)
            parts[:, 2:] /= grown[:, :-1]
            parts[:, 0] = self.total
            totals = grown * np.add.accumulate(parts, axis=1)[:, 1:]
            parts[:, 0] = self.best
            bests = np.maximum.accumulate(parts, axis=1)
            self.total, self.best = totals[:, -1].tolist(), (grown[:, -1] * bests[:, -1]).tolist()
        is_better = bests[:, 1:] > bests[:, :-1]
        last = len(gains) - 1 - is_better[:, ::-1].argmax(axis=1)
        for k in np.flatnonzero(is_better.any(axis=1)).tolist():
            self.start[k], self.before[k] = starts.item(last[k]), befores.item(last[k])
        return totals.sum(axis=0)

    def copy(self) -> Wealth:
        wealth = Wealth()
        for name in self.__slots__:
            setattr(wealth, name, [*getattr(self, name)])
        return wealth

    @property
    def nbytes(self) -> int:
        """Size of the packed array, in bytes."""
        return 4 * 8 * len(STAKES)

    def pack(self) -> F64:
        """The wealth as an array of shape (4, 8)."""
        return np.array([self.total, self.best, self.start, self.before])

    @classmethod
    def unpack(cls, array: F64) -> Wealth:
        """The inverse of `pack`. Raises StateFormatError."""
        if array.shape != (4, len(STAKES)) or not (np.isfinite(array) & (array >= 0.0)).all():
            raise StateFormatError(
                f"wealth of shape {array.shape}; it is 4 rows of {len(STAKES)}, finite and not negative"
            )
        wealth = cls()
        wealth.total, wealth.best, wealth.start, wealth.before = array.tolist()
        return wealth


@final
@dataclass(slots=True)
class DriftAlarm(StatePart):
    """Reports a rise of the error, and then begins a new segment.

    `count`, `total` and `spread` are the number, the sum and the V of the segment's cut errors. `mean` is the mean of the
    segment's first squared errors, and `seen` is their number.

    Examples
    --------
    >>> drift = DriftAlarm(is_of_numbers=False)
    >>> drift.run([float(t % 10 == 0) for t in range(1000)])
    []
    >>> alarm, = drift.run([float(t % 10 != 0) for t in range(60)])
    >>> alarm.t, round(alarm.before, 2), round(alarm.after, 2), alarm.since
    (1040, 0.1, 0.9, 1001)
    """

    is_of_numbers: bool
    alpha: float = ALPHA
    t: int = 0
    seen: int = 0
    mean: float = 0.0
    count: int = 0
    total: float = 0.0
    spread: float = 0.0
    settled: float = 0.0
    """`total` at the start of the block."""
    ceiling: float = 1.0
    """m, the upper bound on the mean error if it never rose."""
    wealth: Wealth = field(default_factory=Wealth)

    def __post_init__(self) -> None:
        """Raise StateFormatError for a state that no errors can lead to."""
        if not 0.0 < self.alpha < 1.0:
            raise StateFormatError(f"alpha is {self.alpha}; it must be above 0 and below 1")
        first = self.seen if self.is_of_numbers else 0
        most = self.count * (1.0 + SLACK)
        if (
            not 0 <= first + self.count <= self.t
            or first > UNCOUNTED
            or (self.count and self.is_of_numbers and first < UNCOUNTED)
        ):
            raise StateFormatError(f"{self.seen} and {self.count} of {self.t} rounds are impossible")
        if not (0.0 <= self.settled <= self.total <= most and 0.0 <= self.spread <= most and 0.0 < self.ceiling <= 1.0):
            raise StateFormatError(
                f"errors of sum {self.total}, spread {self.spread} and ceiling {self.ceiling} are impossible"
            )
        if not 0.0 <= self.mean <= LARGEST * (1.0 + SLACK):
            raise StateFormatError(f"a mean squared error of {self.mean} is impossible")

    def add(self, error: float) -> Rise | None:
        """Add one error, in the order in which the truths arrive. Takes about 2 us.

        Parameters
        ----------
        error : float
            In [0, 1]; for numbers the squared error, at least 0, perhaps infinite.

        Raises
        ------
        NonFiniteError, InputError; the state is then unchanged.
        """
        if math.isnan(error):
            raise NonFiniteError("an error is not a number", "y")
        if error < 0.0 or (error > 1.0 and not self.is_of_numbers):
            raise InputError(f"an error of {error}; errors of classes are in [0, 1], of numbers at least 0", "y")
        error = float(error)
        self.t += 1
        if self.is_of_numbers and self.seen < UNCOUNTED:
            self.seen += 1
            self.mean += (min(error, LARGEST) - self.mean) / self.seen
            return None
        x = cut(error, TIMES * self.mean) if self.is_of_numbers else error
        away = x - (self.total + 0.5) / (self.count + 1)
        self.spread += away * away
        self.total += x
        self.count += 1
        if self.count % BLOCK:
            return None
        if self._is_alarming():
            return self._begin_again()
        if self.count % EVERY == 0:
            bound = (self.total + boundary(self.spread, self.alpha / 2.0)) / self.count
            self.ceiling = min(self.ceiling, bound)
        return None

    def run(self, errors: F64 | Sequence[float]) -> list[Rise]:
        """Add errors in order, shape (n,); equals `add` of each, up to rounding.

        Raises NonFiniteError, InputError; the state is then unchanged.
        """
        rows = np.asarray(errors, dtype=np.float64)
        if np.isnan(rows).any():
            raise NonFiniteError("an error is not a number", "y")
        if (rows < 0.0).any() or (not self.is_of_numbers and (rows > 1.0).any()):
            raise InputError("an error is out of range; errors of classes are in [0, 1], of numbers at least 0", "y")
        found: list[Rise] = []
        while len(rows):
            single = max(UNCOUNTED - self.seen, 0) if self.is_of_numbers else 0
            if len(rows) < single + FEW:
                single = len(rows)
            found += [risen for error in rows[:single].tolist() if (risen := self.add(error)) is not None]
            rows = rows[single:]
            if len(rows):
                rows = rows[self._run(rows[:AT_ONCE], found) :]
        return found

    def _run(self, errors: F64, found: list[Rise]) -> int:
        """Add FEW to AT_ONCE errors of one segment, up to its alarm, and return how many were used."""
        x = cuts(errors, TIMES * self.mean) if self.is_of_numbers else errors
        counts = np.arange(self.count + 1, self.count + len(x) + 1)
        totals = running(self.total, x)
        away = x - (totals[:-1] + 0.5) / counts
        spreads = running(self.spread, away * away)
        ends = np.arange(BLOCK - self.count % BLOCK, len(x) + 1, BLOCK)
        sums, ceilings = totals[ends], np.full(len(ends), np.inf)
        is_bounded = counts[ends - 1] % EVERY == 0
        upto = ends[is_bounded]
        ceilings[is_bounded] = (totals[upto] + boundaries(spreads[upto], self.alpha / 2.0)) / counts[upto - 1]
        ceilings = np.minimum.accumulate(np.concatenate(((self.ceiling,), ceilings)))
        befores = np.concatenate(((self.settled,), sums[:-1]))
        gains, starts = (sums - befores) / BLOCK / ceilings[:-1] - 1.0, (counts[ends - 1] - BLOCK).astype(np.float64)
        before = self.wealth.copy()
        rich = np.flatnonzero(self.wealth.bet_rows(gains, starts, befores) >= self._enough)
        n = len(x)
        if len(rich):
            blocks = int(rich[0]) + 1
            n, self.wealth = int(ends[blocks - 1]), before
            self.wealth.bet_rows(gains[:blocks], starts[:blocks], befores[:blocks])
        self.t, self.count = self.t + n, self.count + n
        self.total, self.spread = totals.item(n), spreads.item(n)
        if len(rich):
            found.append(self._begin_again())
        else:
            self.settled, self.ceiling = sums.item(-1), ceilings.item(-1)
        return n

    @property
    def _enough(self) -> float:
        """The sum of the E_k at which the alarm is raised."""
        return 2.0 / self.alpha * len(STAKES)

    def _is_alarming(self) -> bool:
        """Settle the bets on the last block, and return whether the wealth suffices for an alarm."""
        gain = (self.total - self.settled) / BLOCK / self.ceiling - 1.0
        wealth = self.wealth.bet(gain, float(self.count - BLOCK), self.settled)
        self.settled = self.total
        return wealth >= self._enough

    def _begin_again(self) -> Rise:
        """Begin a new segment, and return the alarm of the old one."""
        alarm = self._alarm()
        self.seen, self.mean, self.count, self.total, self.spread = 0, 0.0, 0, 0.0, 0.0
        self.settled, self.ceiling, self.wealth = 0.0, 1.0, Wealth()
        return alarm

    def _alarm(self) -> Rise:
        """The alarm, dated from the start of the most profitable bets."""
        wealth, best = self.wealth, self.wealth.best
        k = best.index(max(best))
        start, before = wealth.start[k], wealth.before[k]
        unit = 1.0
        if self.is_of_numbers:
            unit = TIMES * self.mean
        earlier = before / start if start else 0.0
        later = (self.total - before) / (self.count - start)
        return Rise(self.t, unit * earlier, unit * later, self.t - self.count + int(start) + 1)
