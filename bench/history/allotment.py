"""Which rounds are still to be played, by whom, and how far the run is."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from random import Random
from typing import NamedTuple, final

HELD_BACK = 0.03
"""The last rounds are played when all faults are over."""


def shares(most: Mapping[str, int | None], rounds: int) -> dict[str, int]:
    """Rounds of each session: as many of each, but for those of which at most so many are played."""
    left, found = dict(most), dict.fromkeys(most, 0)
    while left:
        share, more = divmod(rounds, len(left))
        small = {name: bound for name, bound in left.items() if bound is not None and bound < share}
        found |= small or {name: share + (i < more) for i, name in enumerate(left)}
        rounds -= sum(small.values())
        left = {name: bound for name, bound in left.items() if name not in small} if small else {}
    return found


class Allotted(NamedTuple):
    session: str
    serials: tuple[int, ...]


@final
class Allotment:
    """Rounds of all sessions, each given out once. Its serial names a round in the whole run. For many threads."""

    def __init__(self, shares: Mapping[str, int]) -> None:
        self._left = dict(shares)
        self._rounds = rounds = sum(shares.values())
        self._given = 0
        self._held_back = int(HELD_BACK * rounds)
        self._lock = threading.Lock()
        self._are_faults_over = False

    @property
    def given(self) -> int:
        return self._given

    @property
    def is_held(self) -> bool:
        """Do the clients wait for the faults to be over?"""
        return not self._are_faults_over and self._given >= self._rounds - self._held_back

    @property
    def is_used_up(self) -> bool:
        return self._given >= self._rounds

    def end_faults(self) -> None:
        self._are_faults_over = True

    def take(self, dice: Random, count: int = 1, session: str | None = None) -> Allotted | None:
        """`count` rounds of one session, or fewer; None if it has none left, or for now."""
        with self._lock:
            if self.is_held:
                return None
            names = [name for name, left in self._left.items() if left and session in (None, name)]
            if not names:
                return None
            name = dice.choice(names)
            taken = min(count, self._left[name])
            self._left[name] -= taken
            serials = tuple(range(self._given, self._given + taken))
            self._given += taken
            return Allotted(name, serials)
