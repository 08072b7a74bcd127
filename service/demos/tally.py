"""The fate of acknowledged updates: lost, learned once, or learned more than once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple


class UpdateTally(NamedTuple):
    """Counts of updates. `learned` counts every time that an update was learned; `lost` and `doubled` compare by number."""

    acknowledged: int
    learned: int
    lost: int
    doubled: int

    @property
    def is_exact(self) -> bool:
        return not (self.lost or self.doubled)

    def __str__(self) -> str:
        return f"{self.lost:,} lost, {self.doubled:,} doubled"


def tally(acknowledged: Collection[int], times: Mapping[int, int]) -> UpdateTally:
    """The tally of acknowledged updates by number, and of how often the model has learned each.

    Examples
    --------
    >>> str(tally([0, 1, 2, 3], {0: 1, 1: 3, 3: 1}))
    '1 lost, 2 doubled'
    """
    lost = sum(not times.get(number) for number in acknowledged)
    doubled = sum(max(0, count - 1) for count in times.values())
    return UpdateTally(len(acknowledged), sum(times.values()), lost, doubled)


def tally_of_rounds(rounds: Mapping[int, int], before: int, now: int) -> UpdateTally:
    """The tally of one of our sessions, from the round number in the answer to each acknowledged update.

    Each update was learned exactly once if and only if these are the rounds from `before` + 1 to `now`, each of them once.

    Examples
    --------
    >>> str(tally_of_rounds({7: 11, 8: 12, 9: 13}, before=10, now=13))
    '0 lost, 0 doubled'
    >>> str(tally_of_rounds({7: 11, 8: 12, 9: 12}, before=10, now=13))
    '1 lost, 1 doubled'
    """
    distinct = {t for t in rounds.values() if before < t <= now}
    return UpdateTally(len(rounds), now - before, len(rounds) - len(distinct), now - before - len(distinct))
