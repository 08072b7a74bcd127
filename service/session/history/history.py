"""A session's history: its rounds, summed in chunks of CHUNK and thinned, beside those of trivial forecasters.

All of it follows from the journal. The trivial forecasters are the majority or the mean of the truths so far, and the last
truth. Two anytime-valid tests (`okl_core.monitoring`) decide whether the learner beats both, and whether its error has risen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from okl_core.contract.state import count_in, pack, part_of, prefixed, unpack
from okl_core.errors import StateFormatError
from okl_core.monitoring.plain import Plain, PlainClasses, PlainNumbers
from okl_core.monitoring.thinned import Thinned
from okl_core.monitoring.verdict import Verdict
from okl_core.types import F64, BlockInfo, Standing, StatePart, Stored

from ..codec import Pair
from ..definition import AlarmRules
from ..moment import NO_MOMENT, Moment
from ..scorecard import LARGEST, Issued
from ..task import Task
from .alarms import Alarms, WindowedError
from .spread import QUANTILES, Spread
from .standings import Standings

CHUNK: Final = 8
"""Rounds in the finest point."""

WIDTH, LEVELS = 32, 16
"""At most 512 points. After width (2^levels - 1) chunks, 16.8 million rounds, the finest point is two chunks, and so on."""

SUMS: Final = (
    "rounds",
    "loss",
    "error",
    "first_loss",
    "first_error",
    "second_loss",
    "second_error",
    "promised",
    "kept",
    "late",
    "waited_s",
    "took_s",
)
LATEST: Final = ("at", "waiting", "never_came", "dictionary", "bytes", "regret", *(f"quantile_{q}" for q in QUANTILES))
_PARTS: Final = ("points", "spread", "plain", "verdict", "alarms", "standings")
"""The fields of a history that are stored separately, if present."""

FIXED_BYTES: Final = 8 << 10
"""The approximate size of all parts that do not grow."""

COLUMNS: Final = {name: i for i, name in enumerate((*SUMS, *LATEST))}


class Lived(NamedTuple):
    """The outcome of a round; `truth` in the learner's terms; `is_kept`: whether its interval held, None without one."""

    truth: float
    loss: float
    error: float
    issued: Issued
    is_kept: bool | None


class LivedRows(NamedTuple):
    """The outcomes of n rounds that were played at once, shape (n,) each; `kept` is None without intervals."""

    truths: F64
    losses: F64
    errors: F64
    info: BlockInfo
    kept: NDArray[np.bool_] | None


class Numbers(NamedTuple):
    """The state of the learner at the end of a chunk: the points that it stores, and the standing of its parts."""

    dictionary: float
    standing: Standing | None


class History:
    """A session's history; `points` has the columns SUMS and LATEST.

    `standings` is None for a learner without parts. `has_regret`: whether its regret to the best part is known; `bound`: the
    bound on that regret, NaN if none is known.
    """

    __slots__ = (
        "_moment",
        "_open",
        "_rules",
        "alarms",
        "bound",
        "has_regret",
        "plain",
        "points",
        "rounds",
        "spread",
        "standings",
        "verdict",
    )

    def __init__(self, rules: AlarmRules) -> None:
        self._rules = rules
        self.rounds = 0
        self.points = Thinned(len(SUMS), len(LATEST), width=WIDTH, levels=LEVELS)
        self._open: list[tuple[float, ...]] = []
        self._moment = NO_MOMENT
        self.bound = math.nan
        self.has_regret = False
        self.standings: Standings | None = None
        self.spread = Spread()
        self.plain: Plain | None = None
        self.verdict: Verdict | None = None
        self.alarms: Alarms | None = None

    @property
    def is_classifier(self) -> bool:
        """Whether the truths are labels; False before the first round."""
        return isinstance(self.plain, PlainClasses)

    @property
    def is_due(self) -> bool:
        """Whether the chunk is full, and so must be closed."""
        return len(self._open) == CHUNK

    def trivial_forecasts(self, task: Task | None) -> Pair | None:
        """The trivial forecasters' forecasts of the next truth; None before it is known what the truths are."""
        if self.plain is not None:
            return self.plain.forecasts()
        if task is None or (task.truths.is_classifier and not task.truths.names):
            return None
        return _trivial_of(task).forecasts()

    def add(self, task: Task, lived: Lived, moment: Moment, trivial: Pair | None) -> None:
        """Add a round. `trivial`: the trivial forecasts at the time of the prediction, if that was not now."""
        truths, judge = task.truths, task.judge
        truth = float(lived.truth > 0.0) if truths.is_classifier and not truths.has_classes else lived.truth
        plain, verdict, alarms = self._begun(task)
        first, second = trivial or plain.forecasts()
        (a, b), (c, d) = judge.trivial(first, lived.truth), judge.trivial(second, lived.truth)
        self.rounds += 1
        self._moment = moment
        off = lived.issued.value - truth
        verdict.add(lived.error if truths.is_classifier else off * off, (first.value, second.value), truth)
        alarms.add(self.rounds, moment.at, lived.error)
        plain.learn(truth)
        sureness = judge.sureness(lived.issued, lived.truth)
        if sureness is not None:
            self.spread.add_sure(*sureness)
        elif not truths.is_classifier:
            self.spread.add_residual(min(max(off * truths.unit, -LARGEST), LARGEST))
        is_late = not math.isnan(moment.waited_s)
        if is_late:
            self.spread.add_delay(moment.waited_s)
        waited_s = moment.waited_s if is_late else 0.0
        promised, kept = (0.0, 0.0) if lived.is_kept is None else (1.0, float(lived.is_kept))
        own = min(lived.loss, LARGEST), min(lived.error, LARGEST)
        self._open.append((1.0, *own, a, b, c, d, promised, kept, float(is_late), waited_s, moment.took_s))

    def run(self, task: Task, lived: LivedRows, moment: Moment, numbers: Callable[[], Numbers]) -> None:
        """Add rounds in order that were played at once, at one moment, as `add` of each; calls `numbers` if a chunk ends."""
        judge, y, values = task.judge, lived.truths, lived.info.values
        is_classifier = task.truths.is_classifier
        truths = (y > 0.0).astype(np.float64) if is_classifier and not task.truths.has_classes else y
        plain, verdict, alarms = self._begun(task)
        forecasts = plain.run(truths)
        trivial_losses, trivial_errors = judge.trivial_rows(forecasts, y)
        off = values - truths
        with np.errstate(over="ignore"):
            verdict.run(lived.errors if is_classifier else off * off, forecasts.values, truths)
        alarms.run(self.rounds + 1, moment.at, lived.errors)
        ends = self.ends(len(y))
        quantiles = np.tile(self.spread.quantiles(), (len(ends), 1))
        if is_classifier:
            sureness = judge.sureness_rows(lived.info, y)
            if sureness is not None:
                self.spread.run_sure(*sureness)
        else:
            residuals = np.clip(off * task.truths.unit, -LARGEST, LARGEST)
            quantiles = self.spread.run_residuals(residuals, ends)
        is_late = not math.isnan(moment.waited_s)
        if is_late:
            self.spread.add_delay(moment.waited_s, len(y))
        sums = {
            "rounds": 1.0,
            "loss": np.minimum(lived.losses, LARGEST),
            "error": np.minimum(lived.errors, LARGEST),
            "first_loss": trivial_losses[:, 0],
            "first_error": trivial_errors[:, 0],
            "second_loss": trivial_losses[:, 1],
            "second_error": trivial_errors[:, 1],
            "promised": float(lived.kept is not None),
            "kept": 0.0 if lived.kept is None else lived.kept,
            "late": float(is_late),
            "waited_s": moment.waited_s if is_late else 0.0,
            "took_s": moment.took_s,
        }
        before = len(self._open)
        columns = np.empty((len(SUMS), before + len(y)))
        columns[:, :before] = np.reshape(self._open, (before, len(SUMS))).T
        for column, name in zip(columns, SUMS, strict=True):
            column[before:] = sums[name]
        self.rounds += len(y)
        self._moment = moment
        closed = len(ends) * CHUNK
        self._open = [tuple(row) for row in columns[:, closed:].T.tolist()]
        if len(ends):
            chunks = columns[:, :closed].reshape(len(SUMS), len(ends), CHUNK).sum(axis=2).T
            latest = np.tile(self._latest(numbers(), len(ends)), (len(ends), 1))
            self.points.run(np.hstack((chunks, latest, quantiles)))

    def close(self, numbers: Numbers) -> None:
        """Turn the full chunk into a point."""
        # Column by column, as `run` does, since the order of summation decides the last bits.
        sums = np.ascontiguousarray(np.transpose(self._open)).sum(axis=1)
        self.points.add(np.concatenate((sums, self._latest(numbers, 1), self.spread.quantiles())))
        self._open.clear()

    def _latest(self, numbers: Numbers, chunks: int) -> F64:
        """The LATEST columns at the end of these chunks, without the quantiles."""
        moment, standing, regret = self._moment, numbers.standing, 0.0
        if standing is not None:
            if self.standings is None:
                self.standings = Standings()
            self.standings.add(CHUNK, standing, chunks)
            self.has_regret = standing.losses is not None
            if standing.losses is not None:
                regret, self.bound = standing.loss - float(standing.losses.min()), standing.bound
        return np.array((moment.at, moment.waiting, moment.never_came, numbers.dictionary, moment.nbytes, regret))

    def ends(self, rounds: int) -> range:
        """The numbers of next rounds, up to `rounds`, after which a chunk ends."""
        return range(CHUNK - len(self._open), rounds + 1, CHUNK)

    def check_threshold(self, errors: Sequence[WindowedError]) -> None:
        """Raise an alarm if the windowed error at the end of the last chunks is above the session's threshold."""
        if self.alarms is not None:
            self.alarms.check_threshold(self._moment.at, errors)

    def rows(self) -> F64:
        """All points, shape (n, columns), with the open chunk in the last one."""
        closed, rest = self.points.rows, self.points.rest
        if not self._open:
            return np.vstack((closed, rest)) if len(rest) else closed
        row = np.zeros(closed.shape[1])
        # The latest values are those at the end of the last full chunk.
        for last in (closed[-1:], rest):
            row[len(SUMS) :] = last[0, len(SUMS) :] if len(last) else row[len(SUMS) :]
        row[: len(SUMS)] = rest[:, : len(SUMS)].sum(axis=0) + np.sum(self._open, axis=0)
        row[len(SUMS) : len(SUMS) + 3] = self._moment.at, self._moment.waiting, self._moment.never_came
        return np.vstack((closed, row))

    def _begun(self, task: Task) -> tuple[Plain, Verdict, Alarms]:
        if self.plain is None or self.verdict is None or self.alarms is None:
            is_classifier = task.truths.is_classifier
            self.plain = _trivial_of(task)
            self.verdict = Verdict(is_of_numbers=not is_classifier)
            self.alarms = Alarms(self._rules, is_classifier=is_classifier)
        return self.plain, self.verdict, self.alarms

    @property
    def nbytes(self) -> int:
        """The approximate size in bytes."""
        return FIXED_BYTES + self.points.nbytes + (0 if self.standings is None else self.standings.nbytes)

    @property
    def alarm_count(self) -> int:
        """The number of all alarms raised."""
        return 0 if self.alarms is None else self.alarms.count

    def copy(self) -> History:
        return History.unpack(self._rules, self.pack())

    def pack(self) -> dict[str, Stored]:
        arrays: dict[str, Stored] = {"open": np.array(self._open, dtype=np.float64).reshape(-1, len(SUMS))}
        parts = {name: getattr(self, name) for name in _PARTS}
        for name, part in parts.items():
            if part is not None:
                packed = pack(part) if isinstance(part, StatePart) else part.pack()
                arrays |= prefixed(name, packed)
        last = self._moment
        counts = (self.rounds, last.at, last.nbytes, last.waiting, last.never_came, self.has_regret, self.bound)
        return arrays | {"counts": np.array(counts, dtype=np.float64)}

    @classmethod
    def unpack(cls, rules: AlarmRules, arrays: Mapping[str, Stored]) -> History:
        """Raises StateFormatError."""
        history = cls(rules)
        parts = {name: part_of(arrays, name) for name in _PARTS}
        try:
            rounds, at, nbytes, waiting, never_came, has_regret, history.bound = arrays["counts"].tolist()
            history.rounds, history.has_regret = count_in(rounds), bool(has_regret)
            history._moment = Moment(at, nbytes=nbytes, waiting=count_in(waiting), never_came=count_in(never_came))
            opened = arrays["open"]
            if not (opened.shape[1:] == (len(SUMS),) and len(opened) < CHUNK and np.isfinite(opened).all()):
                raise ValueError(f"the open chunk, of shape {opened.shape}, is none")
            if not math.isfinite(at):
                raise ValueError("the last round has no time")
            history._open = [tuple(row) for row in opened.tolist()]
        except (KeyError, ValueError, TypeError) as error:
            raise StateFormatError(f"the history cannot be read: {error}") from error
        history.points, history.spread = Thinned.unpack(parts["points"]), Spread.unpack(parts["spread"])
        if parts["plain"]:
            history.plain = unpack(PlainClasses if "top" in parts["plain"] else PlainNumbers, parts["plain"])
            history.verdict = unpack(Verdict, parts["verdict"])
            history.alarms = Alarms.unpack(rules, parts["alarms"])
        if parts["standings"]:
            history.standings = Standings.unpack(parts["standings"])
        return history


def _trivial_of(task: Task) -> Plain:
    """The trivial forecasters before the first truth."""
    return PlainClasses.of(len(task.truths.names)) if task.truths.is_classifier else PlainNumbers()
