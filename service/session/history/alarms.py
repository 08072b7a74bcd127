"""When a session's error has risen: by a test with a stated rate of false alarms, or above the session's own threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, get_args

import numpy as np

from okl_core.contract.state import pack, part_of, prefixed, unpack
from okl_core.errors import StateFormatError
from okl_core.monitoring.drift import DriftAlarm, Rise
from okl_core.types import F64, Stored

from ..definition import AlarmRules

MOST: Final = 64
"""Alarms that are kept, the latest; all are counted."""

FEWEST_ROUNDS: Final = 50
"""Before so many rounds no error is above a threshold."""

AlarmKind = Literal["drift", "error"]
_KINDS: tuple[AlarmKind, ...] = get_args(AlarmKind)


class Alarm(NamedTuple):
    """Raised by round `t` at the time `at`: the error was `before`, and is `after` in the rounds after `since`.

    The errors are mistake rates or RMSE. Before an alarm of the kind "error" it was the threshold.
    """

    t: int
    at: float
    kind: AlarmKind
    before: float
    after: float
    since: int


class WindowedError(NamedTuple):
    """By round `t`: the mistake rate, or RMSE, of the last `window` rounds."""

    t: int
    window: int
    error: float


class Alarms:
    """What a session has raised: by the test, if its rules have one, and by their threshold, if there is one."""

    __slots__ = ("_drift", "_is_above", "_rules", "count", "latest")

    def __init__(self, rules: AlarmRules, *, is_classifier: bool) -> None:
        self._rules = rules
        self._drift = None if rules.rate is None else DriftAlarm(is_of_numbers=not is_classifier, alpha=rules.rate)
        self._is_above = False
        self.count = 0
        """Raised in all."""
        self.latest: list[Alarm] = []

    def add(self, t: int, at: float, error: float) -> None:
        """Round t: a mistake or not, or a squared error."""
        risen = None if self._drift is None else self._drift.add(error)
        if risen is not None:
            self._risen(risen, t, at)

    def run(self, t: int, at: float, errors: F64) -> None:
        """Rounds in order, the first one round t, shape (n,): as `add` of each."""
        if self._drift is not None:
            before = self._drift.t
            for risen in self._drift.run(errors):
                self._risen(risen, t + risen.t - before - 1, at)

    def _risen(self, risen: Rise, t: int, at: float) -> None:
        before, after = risen.before, risen.after
        if self._drift is not None and self._drift.is_of_numbers:
            before, after = math.sqrt(before), math.sqrt(after)
        self._raise(Alarm(t, at, "drift", before, after, risen.since - 1))

    def look(self, at: float, looks: Sequence[WindowedError]) -> None:
        """Looks in order, at rounds up to the last one."""
        threshold = self._rules.error_above
        if threshold is None:
            return
        for t, window, error in looks:
            if t < FEWEST_ROUNDS:
                continue
            if error > threshold and not self._is_above:
                self._raise(Alarm(t, at, "error", threshold, error, t - window))
            self._is_above = error > threshold

    def _raise(self, alarm: Alarm) -> None:
        self.count += 1
        # Of rounds that were played at once the test tells its alarms first.
        self.latest = sorted([*self.latest, alarm], key=lambda one: one.t)[-MOST:]

    def pack(self) -> dict[str, Stored]:
        rows = [(*alarm[:2], _KINDS.index(alarm.kind), *alarm[3:]) for alarm in self.latest]
        arrays = {
            "latest": np.array(rows, dtype=np.float64).reshape(-1, len(Alarm._fields)),
            "counts": np.array([self.count, self._is_above], dtype=np.float64),
        }
        return arrays if self._drift is None else arrays | prefixed("drift", pack(self._drift))

    @classmethod
    def unpack(cls, rules: AlarmRules, arrays: Mapping[str, Stored]) -> Alarms:
        """Raises StateFormatError."""
        alarms, drift = cls(rules, is_classifier=True), part_of(arrays, "drift")
        try:
            alarms._drift = unpack(DriftAlarm, drift) if drift else None
            alarms.count, alarms._is_above = int(arrays["counts"][0]), bool(arrays["counts"][1])
            alarms.latest = [
                Alarm(int(t), at, _KINDS[int(kind)], before, after, int(since))
                for t, at, kind, before, after, since in arrays["latest"].tolist()
            ]
        except (KeyError, ValueError, IndexError) as error:
            raise StateFormatError(f"the alarms cannot be read: {error}") from error
        return alarms
