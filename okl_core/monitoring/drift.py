r"""Has the error risen? An alarm that goes off falsely with a probability of at most alpha, at all times together.

The errors of a segment, cut to x_i in [0, 1], are bet upon: once an error is likelier than it was in the mean, who bets on
errors gets rich. This is an e-detector [shin2023] whose baseline is not given but bounded from the past.

| symbol   | meaning                                                                                            |
|----------|----------------------------------------------------------------------------------------------------|
| mu_i     | mean of x_i given all before                                                                       |
| M_s      | mean of mu_1 ... mu_s                                                                              |
| U_s      | mean of x_1 ... x_s, plus u(V_s) / s at alpha / 2 (`okl_core.monitoring.bands`); every 8 rounds    |
| y_j, m_j | mean of the four x_i of block j; the smallest U_s of s before the block, at most 1                 |
| lambda_k | 0.9 2^-k, k = 0 ... 7: a share of the wealth, each best for one size of a rise                     |
| w_j      | 1 / ((b + 1) (b + 2) 2^b), b = floor(log2 j): new wealth at the start of block j; sums to 1        |
| E_k      | (1 + lambda_k (y_j / m_j - 1)) (E_k + w_j), block by block from 0                                  |

Alarm where the mean of the eight E_k reaches 2 / alpha.

**Guarantee.** If no mu_i is above M_{i-1}, the probability of any alarm in the segment is at most alpha. Errors that are
independent and equally likely keep this, and those whose conditional mean only falls; nothing else is assumed.

Proof. M_i = ((i - 1) M_{i-1} + mu_i) / i <= M_{i-1}, so mu_i <= M_{i-1} <= M_s for all s < i. With a probability of at least
1 - alpha / 2, M_s <= U_s at all s; then mu_i <= m_j in all rounds i of all blocks j. Let tau be the first i with mu_i > m_j;
it is known before x_i is. Within a block each round adds lambda_k (x_i / m_j - 1) / 4 of the wealth at its start: at most a
quarter is lost, and before tau nothing is won in the mean. So the mean of the E_k plus the wealth to come, 1 - w_1 - ... -
w_j, stopped before tau, is a nonnegative supermartingale that begins at 1: by Ville's inequality it reaches 2 / alpha with a
probability of at most alpha / 2. And tau comes with at most alpha / 2.

Not covered: errors that come in clusters, such as those of a Markov chain. There mu_i goes up and down, and an alarm says
that the error has been likelier for a while. It is for these that four rounds are one bet: bets on single rounds notice a
large rise after half as many rounds, but most clusters too.
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
"""At 1 a single block without an error would lose all; the smallest is for rises by a hundredth."""
_STAKES: F64 = np.array(STAKES)[:, None]
BLOCK, EVERY = 4, 8
"""Rounds of a bet; from one bound of the past to the next, a multiple of it."""
FEW, AT_ONCE = 64, 1024
"""Rounds from which on bets are settled together, and the most: 0.1 to the power of their blocks is still a number."""
TIMES, UNCOUNTED = 16.0, 32
"""A squared error is cut at so many times the mean of the first ones of the segment; these are not counted."""


class Rise(NamedTuple):
    """The error has risen: noticed with round `t`, most likely since round `since`; rounds are numbered from 1."""

    t: int
    before: float
    """Mean error in the segment before round `since`; of a number the squared error, cut."""
    after: float
    """Mean error from round `since` on; a little too high, as it is the start that was chosen for it."""
    since: int


@final
class Wealth:
    """What the bets of each stake have made, shape (8,) each, as lists: a round is faster with floats.

    `total` of all starts, E_k; `best` of the best start; and of that one the rounds of the segment before it, and their sum.
    """

    __slots__ = ("before", "best", "start", "total")

    def __init__(self) -> None:
        nothing = [0.0] * len(STAKES)
        self.total, self.best, self.start, self.before = list(nothing), list(nothing), list(nothing), list(nothing)

    def bet(self, gain: float, start: float, before: float) -> float:
        """Settle the bets of a block: the sum of the E_k. `gain`: y_j / m_j - 1; `before`: the sum of those before it."""
        b = (int(start) // BLOCK + 1).bit_length() - 1
        new, made, total, best = 1.0 / ((b + 1) * (b + 2) << b), 0.0, self.total, self.best
        for k, share in enumerate(STAKES):
            factor = 1.0 + share * gain
            total[k] = now = factor * (total[k] + new)
            made += now
            if best[k] < new:
                best[k], self.start[k], self.before[k] = new, start, before
            best[k] *= factor
        return made

    def bet_rows(self, gains: F64, starts: F64, befores: F64) -> F64:
        """1 to 256 blocks in order, shape (n,) each: as `bet` of each, but for rounding.

        With the product P_j of the first j factors, E_j = P_j (E_0 + sum_{i <= j} w_i / P_{i-1}).
        """
        # j as a float has the exponent 1 + floor(log2 j).
        b = np.frexp(starts // BLOCK + 1.0)[1] - 1
        parts = np.tile(1.0 / np.ldexp((b + 1.0) * (b + 2.0), b), (len(STAKES), 1))
        # Wealth overflows only long after the alarm.
        with np.errstate(over="ignore"):
            grown = np.multiply.accumulate(1.0 + _STAKES * gains, axis=1)
            parts[:, 1:] /= grown[:, :-1]
            totals = grown * (np.array(self.total)[:, None] + np.add.accumulate(parts, axis=1))
            bests = np.maximum.accumulate(np.hstack((np.array(self.best)[:, None], parts)), axis=1)
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
        """As they are packed."""
        return 4 * 8 * len(STAKES)

    def pack(self) -> F64:
        """Shape (4, 8)."""
        return np.array([self.total, self.best, self.start, self.before])

    @classmethod
    def unpack(cls, array: F64) -> Wealth:
        """What `pack` gave. Raises StateFormatError."""
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
    """Tells when the error has risen, and begins a new segment then.

    `count`, `total` and `spread`: the errors of the segment, cut, their sum, and V. `mean`: of the segment's first
    squared errors, of which there were `seen`.

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
    """What `total` was at the start of the block."""
    ceiling: float = 1.0
    """m: what the mean error is at most if it never rose."""
    wealth: Wealth = field(default_factory=Wealth)

    def __post_init__(self) -> None:
        """Refuse what no errors lead to. Raises StateFormatError."""
        if not 0.0 < self.alpha < 1.0:
            raise StateFormatError(f"alpha is {self.alpha}; it must be above 0 and below 1")
        first = self.seen if self.is_of_numbers else 0
        most = self.count * (1.0 + SLACK)
        if (
            not 0 <= first + self.count <= self.t
            or first > UNCOUNTED
            or (self.count and self.is_of_numbers and first < UNCOUNTED)
        ):
            raise StateFormatError(f"{self.seen} and {self.count} of {self.t} rounds cannot be")
        if not (0.0 <= self.settled <= self.total <= most and 0.0 <= self.spread <= most and 0.0 < self.ceiling <= 1.0):
            raise StateFormatError(
                f"errors of sum {self.total}, spread {self.spread} and ceiling {self.ceiling} cannot be"
            )
        if not 0.0 <= self.mean <= LARGEST * (1.0 + SLACK):
            raise StateFormatError(f"a mean squared error of {self.mean} cannot be")

    def add(self, error: float) -> Rise | None:
        """One more error, in the order in which the truths come. About 2 us.

        Parameters
        ----------
        error : float
            0 or 1, or between; of a number its squared error, at least 0, perhaps infinite.

        Raises
        ------
        NonFiniteError, InputError; nothing has changed then.
        """
        if math.isnan(error):
            raise NonFiniteError("an error is not a number", "y")
        if error < 0.0 or (error > 1.0 and not self.is_of_numbers):
            raise InputError(f"an error of {error}; one of a class is in [0, 1], of a number at least 0", "y")
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
        """Errors in order, shape (n,): as `add` of each, but for rounding.

        Raises NonFiniteError, InputError; nothing has changed then.
        """
        rows = np.asarray(errors, dtype=np.float64)
        if np.isnan(rows).any():
            raise NonFiniteError("an error is not a number", "y")
        if (rows < 0.0).any() or (not self.is_of_numbers and (rows > 1.0).any()):
            raise InputError("an error is out of range; one of a class is in [0, 1], of a number at least 0", "y")
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
        """FEW to AT_ONCE errors of a segment, up to its alarm; how many these were."""
        x = cuts(errors, TIMES * self.mean) if self.is_of_numbers else errors
        counts = np.arange(self.count + 1, self.count + len(x) + 1)
        totals = running(self.total, x)
        away = x - (totals[:-1] + 0.5) / counts
        spreads = running(self.spread, away * away)
        ends = np.arange(BLOCK - self.count % BLOCK, len(x) + 1, BLOCK)
        sums, ceilings = totals[ends], np.full(len(ends), np.inf)
        told = counts[ends - 1] % EVERY == 0
        upto = ends[told]
        ceilings[told] = (totals[upto] + boundaries(spreads[upto], self.alpha / 2.0)) / counts[upto - 1]
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
        """The sum of the E_k at which there is an alarm."""
        return 2.0 / self.alpha * len(STAKES)

    def _is_alarming(self) -> bool:
        """Settle the bets on the last block: is the wealth enough?"""
        gain = (self.total - self.settled) / BLOCK / self.ceiling - 1.0
        made = self.wealth.bet(gain, float(self.count - BLOCK), self.settled)
        self.settled = self.total
        return made >= self._enough

    def _begin_again(self) -> Rise:
        """The alarm, and a new segment."""
        alarm = self._alarm()
        self.seen, self.mean, self.count, self.total, self.spread = 0, 0.0, 0, 0.0, 0.0
        self.settled, self.ceiling, self.wealth = 0.0, 1.0, Wealth()
        return alarm

    def _alarm(self) -> Rise:
        """From the start of the bets that made most."""
        wealth, best = self.wealth, self.wealth.best
        k = best.index(max(best))
        start, before = wealth.start[k], wealth.before[k]
        unit = 1.0
        if self.is_of_numbers:
            unit = TIMES * self.mean
        earlier = before / start if start else 0.0
        later = (self.total - before) / (self.count - start)
        return Rise(self.t, unit * earlier, unit * later, self.t - self.count + int(start) + 1)
