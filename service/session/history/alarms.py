"""Alarms for a risen error: by a test with a stated rate of false alarms, or by the session's own threshold."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple, get_args

import numpy as np

from okl_core.contract.state import count_in, pack, part_of, prefixed, unpack
from okl_core.errors import StateFormatError
from okl_core.monitoring.drift import DriftAlarm, Rise
from okl_core.types import F64, Stored

from ..definition import AlarmRules

MOST: Final = 64
"""The number of latest alarms that are kept; all are counted."""

FEWEST_ROUNDS: Final = 50
"""The threshold raises no alarm before this many rounds."""

AlarmKind = Literal["drift", "error"]
_KINDS: tuple[AlarmKind, ...] = get_args(AlarmKind)


class Alarm(NamedTuple):
    """Raised by round `t` at the time `at`: the error was `before`, and is `after` in the rounds after `since`.

    The errors are mistake rates or RMSE. In an alarm of the kind "error", `before` is the threshold.
    """

    t: int
    at: float
    kind: AlarmKind
    before: float
    after: float
    since: int

    @property
    def mark(self) -> tuple[int, float, str]:
        """What distinguishes it from all other alarms of the session; the errors may differ in rounding between workers."""
        return self.t, self.at, self.kind


class WindowedError(NamedTuple):
    """The mistake rate, or RMSE, of the last `window` rounds at round `t`."""

    t: int
    window: int
    error: float


class Alarms:
    """The alarms of a session, raised by the rules' test and their threshold, each if set."""

    __slots__ = ("_drift", "_is_above", "_rules", "count", "latest")

    def __init__(self, rules: AlarmRules, *, is_classifier: bool) -> None:
        self._rules = rules
        self._drift = None if rules.rate is None else DriftAlarm(is_of_numbers=not is_classifier, alpha=rules.rate)
        self._is_above = False
        self.count = 0
        """The number of all alarms raised."""
        self.latest: list[Alarm] = []

    def add(self, t: int, at: float, error: float) -> None:
        """Add the error of round t: a mistake (1) or not (0), or a squared error."""
        risen = None if self._drift is None else self._drift.add(error)
        if risen is not None:
            self._risen(risen, t, at)

    def run(self, t: int, at: float, errors: F64) -> None:
        """Add errors of rounds t, t + 1, ... in order, shape (n,); the same as `add` of each."""
        if self._drift is not None:
            before = self._drift.t
            for risen in self._drift.run(errors):
                self._risen(risen, t + risen.t - before - 1, at)

    def _risen(self, risen: Rise, t: int, at: float) -> None:
        before, after = risen.before, risen.after
        if self._drift is not None and self._drift.is_of_numbers:
            before, after = math.sqrt(before), math.sqrt(after)
        self._raise(Alarm(t, at, "drift", before, after, risen.since - 1))

    def check_threshold(self, at: float, errors: Sequence[WindowedError]) -> None:
        """Compare windowed errors, in the order of their rounds, with the threshold."""
        threshold = self._rules.error_above
        if threshold is None:
            return
        for t, window, error in errors:
            if t < FEWEST_ROUNDS:
                continue
            if error > threshold and not self._is_above:
                self._raise(Alarm(t, at, "error", threshold, error, t - window))
            self._is_above = error > threshold

    def _raise(self, alarm: Alarm) -> None:
        self.count += 1
        # In a block the test's alarms are raised before the threshold's.
        self.latest = sorted([*self.latest, alarm], key=lambda one: one.t)[-MOST:]

    def after(self, count: int) -> Sequence[Alarm]:
        """Return those of the latest alarms that are not among the first `count`."""
        return self.latest[-(self.count - count) :] if self.count > count else ()

    def before(self, some: Collection[Alarm]) -> int:
        """Return how many alarms precede the first of these; the number of all if it has none of them."""
        marks = {one.mark for one in some}
        first = next((i for i, one in enumerate(self.latest) if one.mark in marks), len(self.latest))
        return self.count - len(self.latest) + first

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
            alarms.count, alarms._is_above = count_in(arrays["counts"][0]), bool(arrays["counts"][1])
            alarms.latest = [
                Alarm(count_in(t), at, _KINDS[int(kind)], before, after, count_in(since))
                for t, at, kind, before, after, since in arrays["latest"].tolist()
            ]
        except (KeyError, ValueError, IndexError) as error:
            raise StateFormatError(f"the alarms cannot be read: {error}") from error
        return alarms
