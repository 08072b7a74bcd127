"""What a run records: each request as its client saw it, each fault, and each cut of a session's past.

All instants are of one monotonic clock, in seconds since the run began.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Action = Literal["predict", "update", "step", "rounds"]

CUT, TIMED_OUT, REFUSED = "connection-cut", "timed-out", "connection-refused"
"""What stands for a problem's slug where nobody answered. What was refused was never sent."""


@dataclass(slots=True)
class Attempt:
    """One request. `serials` are the rounds that it asks to be learned, in order; `asked` is the round of a prediction.

    `t` is what an answer says of the learned rounds (the last of a block), `predicted_t` and `value` of the prediction.
    `status` is None where nobody answered; `problem` is the slug of what went wrong.
    """

    action: Action
    session: str
    worker: int
    sent: float
    ended: float
    status: int | None
    problem: str = ""
    id: str | None = None
    serials: tuple[int, ...] = ()
    asked: int | None = None
    asked_id: str | None = None
    t: int | None = None
    is_duplicate: bool = False
    loss: float | None = None
    predicted_t: int | None = None
    value: float | None = None
    given: float | None = None
    """The value that was issued for the round that an update settles, where the client had one; NaN if nobody knows."""
    values: tuple[float, ...] = ()
    """The forecasts of a block, round by round."""
    is_again: bool = False
    """The same request was sent before: its answer may be of that time."""
    detail: str = ""

    @property
    def is_answered(self) -> bool:
        return self.status is not None and self.status < 300

    @property
    def may_have_run(self) -> bool:
        """Can it have been applied although nobody said so?"""
        return self.status in (None, 503, 504) and self.problem != REFUSED

    @property
    def first_t(self) -> int:
        """The round before the first one that it learned."""
        assert self.t is not None
        return self.t - len(self.serials)

    def __str__(self) -> str:
        what = f"{self.action} {self.id or ''}".strip()
        rounds = f" of rounds {list(self.serials)}" if self.serials else ""
        return f"{what}{rounds} in {self.session} at worker {self.worker}, {self.sent:.3f} to {self.ended:.3f} s"


@dataclass(slots=True)
class Fault:
    """What was done to the workers or the store from `start` to `end`; at `end` all processes run again."""

    kind: str
    start: float
    end: float = math.inf
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind} ({self.detail}) at {self.start:.1f} s"


@dataclass(slots=True)
class Cut:
    """At some instant from `start` to `end` the past of a session (of all, if None) became an earlier one.

    All that was acknowledged before `kept_until` is still there, and nothing of what was sent after `gone_from` and answered
    before `start`; of what was acknowledged in between some may be there, from its beginning on. `kept` are the rounds that
    each session had kept, where that is known.
    """

    kind: str
    session: str | None
    kept_until: float
    gone_from: float
    start: float
    end: float
    kept: Mapping[str, Sequence[int]] | None = None

    def concerns(self, session: str) -> bool:
        return self.session in (None, session)


@dataclass(slots=True)
class History:
    """All of a run. `kinds` has the learner of each session; `died` are processes that ended by themselves."""

    seed: int
    store: str
    kinds: dict[str, str]
    attempts: list[Attempt] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    died: list[str] = field(default_factory=list)
    abandoned: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that may not be. `check` names the rule that was broken."""

    check: str
    detail: str

    def __str__(self) -> str:
        return f"{self.check}: {self.detail}"
