r"""The work at the end of a phase, spread over the rounds after it: which round does which part.

| symbol      | meaning                                                                                           |
|-------------|---------------------------------------------------------------------------------------------------|
| n           | the last round of the phase; the next metric is learned from rounds 1 to n                        |
| m d         | slopes to be measured, along d axes at m evaluation points                                        |
| a           | slopes measured in one round, ceil(m d / floor((n + 2) / 16)), with 2 for 16 if d > 16            |
| measured(t) | slopes measured by the end of round t > n: min(m d, a (t - n))                                    |
| K           | the first t with measured(t) = m d: the metric is known                                           |
| replayed(t) | rounds replayed to the next packing by the end of round t > K: min(t, 18 (t - K))                 |
| L           | the first t with replayed(t) = t: the next packing is complete, and predicts from then on         |

Round t measures the slopes from measured(t - 1) to measured(t), and replays the rounds from replayed(t - 1) to replayed(t).
The phase after round n has n + 2 rounds. About a sixteenth of them measure, half of them if d > 16, and a sixteenth replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

SHARE = 16
"""One round in SHARE of the next phase measures slopes."""

FEW_INPUTS, SHARE_OF_MANY = 16, 2
"""With more than FEW_INPUTS inputs it is one in SHARE_OF_MANY: slopes are more work, and no round should take much longer
than others."""

REPLAYED_A_ROUND = SHARE + 2
"""Enough to be done after about n / SHARE rounds: to be replayed are the n rounds, those in which slopes were measured, and
one more each round."""


@final
@dataclass(frozen=True, slots=True)
class WorkSchedule:
    """measured(t), replayed(t), K and L of the module's table, for rounds t >= n.

    Examples
    --------
    >>> schedule = WorkSchedule.after(n=62, points=31, dim=2)
    >>> schedule.slopes_a_round, schedule.metric_known, schedule.replay_done
    (16, 66, 70)
    >>> [schedule.measured(t) for t in range(62, 67)], [schedule.replayed(t) for t in range(65, 71)]
    ([0, 16, 32, 48, 62], [0, 0, 18, 36, 54, 70])
    """

    n: int
    slopes: int
    """m d."""
    slopes_a_round: int
    """a."""

    @classmethod
    def after(cls, n: int, points: int, dim: int) -> WorkSchedule:
        """The schedule for the end of a phase with round n."""
        slopes, share = points * dim, SHARE if dim <= FEW_INPUTS else SHARE_OF_MANY
        return cls(n, slopes, -(-slopes // max(1, (n + 2) // share)))

    def measured(self, t: int) -> int:
        return min(self.slopes, self.slopes_a_round * (t - self.n))

    @property
    def metric_known(self) -> int:
        """K."""
        return self.n - (-self.slopes // self.slopes_a_round)

    def replayed(self, t: int) -> int:
        return max(0, min(t, REPLAYED_A_ROUND * (t - self.metric_known)))

    @property
    def replay_done(self) -> int:
        """L."""
        return self.metric_known - (-self.metric_known // (REPLAYED_A_ROUND - 1))
