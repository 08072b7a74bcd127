"""Which instants of the past a session still has. A cut discards what lies between the state it goes back to and itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from bench.history.attempts import Attempt, Cut


class Fate(Enum):
    """What must be true at the end of something that was acknowledged."""

    KEPT = auto()
    """It is there."""
    OPEN = auto()
    """It may be there: it ran around a cut, or among what a cut may have lost."""
    GONE = auto()
    """It is not there: it was discarded."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The cuts of one session, in order, and those that still count: one in times that a later one discarded does not.

    `epochs` are the times between all cuts, discarded or not: within one the session only grew.
    """

    cuts: Sequence[Cut]
    all_cuts: Sequence[Cut]
    epochs: Sequence[tuple[float, float]]

    @classmethod
    def of(cls, session: str, cuts: Sequence[Cut]) -> Timeline:
        own = sorted((cut for cut in cuts if cut.concerns(session)), key=lambda cut: cut.start)
        counting: list[Cut] = []
        upper = math.inf
        for cut in reversed(own):
            if cut.start < upper:
                counting.append(cut)
                upper = cut.kept_until
        bounds = [-math.inf, *(instant for cut in own for instant in (cut.start, cut.end)), math.inf]
        return cls(counting[::-1], own, list(zip(bounds[::2], bounds[1::2], strict=True)))

    def fate(self, attempt: Attempt) -> Fate:
        """Of something that ran at some instant from `sent` to `ended`."""
        for cut in reversed(self.cuts):
            if attempt.sent > cut.end:
                return Fate.KEPT
            if cut.gone_from <= attempt.sent and attempt.ended < cut.start:
                return Fate.GONE
            if attempt.ended > cut.kept_until:
                return Fate.OPEN
        return Fate.KEPT

    def epoch(self, attempt: Attempt) -> int | None:
        """The number of the epoch that it ran in; None for one that ran around a cut."""
        for i, (start, end) in enumerate(self.epochs):
            if start < attempt.sent and attempt.ended < end:
                return i
        return None
