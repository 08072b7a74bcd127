"""A session: inputs, learner and metrics as one thing that plays, learns and replays. No I/O, no clock.

All state that depends on the past is here, and follows from the journal alone: the task, if the first truth decides it; the
fields of the inputs and their scale; the warm-up; the learner; the metrics. A round is played, which changes nothing, and
then learned.

Fields, scale and open parameters are found from the first rounds, in stages (`warmup`). At each stage the learner is made
anew and run over all rounds so far, so that none is lost. Until the first stage a trivial forecaster answers, if the learner
cannot be made yet.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np

from okl.errors import InvalidInput, StateCorrupt
from okl_core.contract.facade import REPLAY_TOLERANCE
from okl_core.contract.lags import lag_rows
from okl_core.errors import InputError, StateError, StateFormatError
from okl_core.records.fields import Fields
from okl_core.records.preparation import Preparation
from okl_core.records.record import Raw, Raws, weights_of
from okl_core.records.warmup import Warmup
from okl_core.types import F64, Forecast

from .codec import BlockEntry, NamedClasses, RoundEntry, decode_entry, encode_block, encode_round, split_note
from .coverage import Coverage, check_promises
from .definition import Definition, Input, Scalar
from .history.alarms import WindowedError
from .history.history import History, Lived, LivedRows, Numbers
from .inputs import read, read_rows
from .maker import HostedLearner, Maker, PreparedLearner
from .moment import NO_MOMENT, Moment
from .names import is_challenger
from .pairing import Pairing
from .played import ARITHMETIC, NOTHING_FIXED, Fixed, Forecasts, FrozenFrom, Pending, Ran, divergence_of, of_rows
from .scorecard import Issued, Scorecard, forecasts_of
from .task import Task, discovery_of, read_truth, task_after

NO_FORECAST = Forecast(math.nan)
"""The forecast before the first truth shows whether truths are labels or numbers."""


class Session:
    """The state of one session. Raises InvalidInput and ConfigError for an invalid definition."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.task = Task.of(definition)
        self.spec = None if self.task is None else self.task.spec
        """The learner's spec, with what was found from the inputs; None before there is a task."""
        self._maker = Maker.of(definition, self.task)
        self.fields = self._maker.declared_fields(self.task)
        """The fields of the inputs, once they are known and fixed."""
        self.preparation: Preparation | None = None
        self.learner: HostedLearner | None = None
        finds = self.task is None or self.task.waits or definition.scale == "learned" or not definition.is_strict
        self.warmup = Warmup(definition.warmup_rounds) if finds else None
        self.frozen: FrozenFrom | None = None
        self.card = Scorecard()
        self.history = History(definition.alarm)
        self.coverage = None if definition.interval is None else Coverage.of(definition.interval)
        if self.coverage is not None and self.task is not None:
            check_promises(self.task)
        self.pairing = Pairing() if is_challenger(definition.name) else None
        self.divergence = 0.0
        """The largest tolerated error of a replay on another arithmetic."""

    @property
    def t(self) -> int:
        """Rounds learned."""
        return self.card.rounds if self.frozen is None or self.learner is None else self.learner.t

    @property
    def dim(self) -> int | None:
        """Columns that the learner is given; None until known."""
        if self.preparation is not None:
            return self.preparation.width
        return self.definition.dim if self.fields is None else self.fields.width

    @property
    def is_warming_up(self) -> bool:
        return self.warmup is not None

    @property
    def nbytes(self) -> int:
        """Memory of the learner, the warm-up and the preparation."""
        parts = (self.learner, self.warmup, self.preparation)
        return sum(part.nbytes for part in parts if part is not None)

    def initial_bytes(self, columns: int) -> int:
        """The least memory of a learner of this many columns. May raise ConfigError."""
        return 0 if self.task is None else self.task.initial_bytes(columns)

    @property
    def lags(self) -> F64 | None:
        """The truths that go with the next input, in the learner's terms, newest first; None for a learner without."""
        if self.spec is None or not self.spec.lags:
            return None
        return np.zeros(self.spec.lags) if self.learner is None else self.learner.lags

    def has_long_round(self, rounds: int) -> bool:
        """Whether one of the next rounds does far more work than its neighbours."""
        if self.warmup is not None and self.warmup.has_stage_within(rounds):
            return True
        return self.learner is not None and self.learner.has_long_round(rounds)

    # -- rounds ---------------------------------------------------------------------------------------------------

    def read_input(self, x: Input, fields: Fields | None = None) -> Raw:
        """The input as it is kept. `fields`: those fixed by an earlier input that is not learned yet. Raises InvalidInput."""
        return self.check_input(read(x, self.definition, self.fields or fields), fields)

    def check_input(self, raw: Raw, fields: Fields | None = None) -> Raw:
        """Check an input that a session with the same inputs has read already. Raises InvalidInput."""
        if self.learner is None and fields is None and self.definition.hashed is None:
            self._maker.check_input(self.task, raw)
        if self.warmup is not None:
            self._maker.check_size(raw, self.fields or fields)
        return raw

    def read_rows(self, xs: Sequence[Input] | F64, ys: Sequence[Scalar] | F64) -> tuple[F64, F64] | None:
        """Inputs, shape (n, d), and truths in the learner's terms, shape (n,), of n ordinary rounds.

        None if any needs to be read by itself: it brings something new, or is wrong.
        """
        if self.warmup is not None or self.learner is None or self.fields is None or self.task is None:
            return None
        X = read_rows(xs, self.definition, self.fields)
        y = None if X is None else self.task.read_truths(ys)
        return None if X is None or y is None else (X, y)

    def fields_after(self, raw: Raw) -> Fields | None:
        """The fields of all inputs once this one is learned, if they are fixed then."""
        return self.fields or self._maker.fixed_fields(raw)

    def read_truth(self, y: Scalar) -> tuple[float, Task]:
        """A truth in the learner's terms, and the task that knows it. Raises InvalidInput."""
        return read_truth(self.definition, self.task, y)

    def forecast(self, raw: Raw) -> Forecast:
        """The forecast in the present state for an input from `read_input`."""
        if self.task is None:
            return NO_FORECAST
        preparation, learner, _ = self._answering(self.task, raw)
        return learner.predict(_vector(preparation, raw))

    def play(
        self,
        raw: Raw,
        y: float,
        task: Task,
        *,
        weight: float = 1.0,
        moment: Moment = NO_MOMENT,
        fixed: Fixed = NOTHING_FIXED,
    ) -> Pending:
        """Play one round without changing anything. `y` and `task` are what `read_truth` returns."""
        issued, lags, promise, trivial, choices, found = fixed
        answering = self._answering(task, raw)
        if lags is None and task.spec.lags:
            lags = answering.learner.lags
        remade = None
        if self.warmup is not None and self.warmup.is_stage(raw):
            rows = self.warmup.with_next(raw, lags, y, weight)
            remade = self._maker.remade(
                task, self.fields, rows, choices, unless=(self.preparation, self.spec), spec=found
            )
        vector, play_choices = _vector(answering.preparation, raw), choices if remade is None else None
        # A stand-in ignores weights.
        play_weight = 1.0 if answering.preparation is None else weight
        played = answering.learner.play(vector, y, choices=play_choices, lags=lags, weight=play_weight)
        if self.coverage is not None and promise is None:
            promise = self.coverage.promised(task, played.forecast, y)
        issued = Issued.of(played.forecast, y) if issued is None else issued
        successor, entry_choices = (None, played.choices) if remade is None else remade
        discovery = discovery_of(self.task, task, None if successor is None else successor.spec)
        entry = RoundEntry(
            raw,
            y,
            issued=issued,
            value=played.forecast.value,
            choices=entry_choices,
            discovery=discovery,
            lags=lags,
            arithmetic=ARITHMETIC,
            weight=weight,
            promise=promise,
            trivial=trivial,
            moment=moment,
        )
        loss, error = task.judge.round(issued, y)
        return Pending(entry, task, played, answering, loss, error, successor)

    def _answering(self, task: Task, raw: Raw) -> PreparedLearner:
        """The learner that answers now, or will answer the first round."""
        if self.learner is not None:
            return PreparedLearner(self.preparation, self.learner, self.spec or task.spec)
        return self._maker.start(task, self.fields, raw)

    def learn(self, pending: Pending) -> None:
        """Carry a played round into the state."""
        entry, answering = pending.entry, pending.answering
        answering.learner.learn(pending.played)
        self._take(answering, pending.task)
        self.fields = self.fields or self.fields_after(entry.x)
        if answering.preparation is not None:
            answering.preparation.see(entry.x)
        is_kept = None
        if self.coverage is not None and entry.promise is not None:
            self.coverage.learn(entry.promise)
            is_kept = entry.promise.is_kept
        self.card.add(pending.loss, pending.error, is_kept)
        issued, now = entry.issued, pending.played.forecast.probability
        if issued.label is None and entry.trivial is None and now is not None:
            # No round came between, so the client was given the present forecast.
            issued = Issued(issued.value, sure=now)
        lived = Lived(entry.y, pending.loss, pending.error, issued, is_kept)
        self.history.add(pending.task, lived, entry.moment, entry.trivial)
        if self.pairing is not None:
            self.pairing.add(pending.error, is_of_numbers=not pending.task.truths.is_classifier)
        if self.warmup is not None:
            is_last = self.warmup.is_last(entry.x)
            self.warmup.add(entry.x, entry.lags, entry.y, entry.weight)
            self.warmup = None if is_last else self.warmup
        if pending.successor is not None:
            self._take(pending.successor, pending.task)
        if self.history.is_due:
            self.history.close(self._numbers())
            self.history.check_threshold(self._windowed_errors(np.empty(0), [0]))

    def _numbers(self) -> Numbers:
        """The numbers about the present learner that the history records."""
        assert self.learner is not None
        return Numbers(self.learner.describe()["dictionary"], self.learner.standing())

    def _windowed_errors(self, errors: F64, ends: Sequence[int]) -> list[WindowedError]:
        """The windowed errors after each of `ends` more rounds, whose errors have shape (n,); empty without a threshold."""
        if self.definition.alarm.error_above is None or self.task is None:
            return []
        root: Callable[[float], float] = float if self.task.truths.is_classifier else math.sqrt
        windows = zip(ends, self.card.windows(errors, ends), strict=True)
        return [WindowedError(self.t + end, size, root(error)) for end, (size, error) in windows]

    def _take(self, made: PreparedLearner, task: Task) -> None:
        self.preparation, self.learner, self.task = made.preparation, made.learner, task
        self.spec = task.spec if made.preparation is None else made.spec

    def run(
        self, raws: Raws, y: F64, tasks: Sequence[Task], moment: Moment = NO_MOMENT, weight: F64 | None = None
    ) -> Ran:
        """Learn n rounds in order, at once. A caller that cannot make the entries durable must drop this object."""
        entries: list[tuple[int, bytes]] = []
        parts: list[Forecasts] = []
        loss, error, start = self.card.loss, self.card.error, 0
        while start < len(y):
            alike = self._rounds_alike(raws[start:], tasks[start:])
            stop = start + max(alike, 1)
            own = None if weight is None else weights_of(weight[start:stop])
            with of_rows(start, self.learner if alike else None):
                if alike:
                    entry, forecasts = self._run_block(raws[start:stop], y[start:stop], own, moment)
                    entries.append((alike, encode_block(entry)))
                    parts.append(forecasts)
                else:
                    alone = 1.0 if own is None else own.item()
                    pending = self.play(raws[start], float(y[start]), tasks[start], weight=alone, moment=moment)
                    self.learn(pending)
                    entries.append((1, encode_round(pending.entry)))
                    parts.append(Forecasts.of(pending.played.forecast, pending.entry.promise))
            start = stop
        return Ran(entries, parts, self.card.loss - loss, self.card.error - error)

    def _rounds_alike(self, raws: Raws, tasks: Sequence[Task]) -> int:
        """The number of next rounds that fit in one block: none may make the learner, make it anew, or add a label."""
        if self.learner is None:
            return 0
        alike = len(raws) if self.warmup is None else self.warmup.rounds_before_a_stage(raws)
        # A task only grows, so the rounds that this one knows come first.
        return bisect_left(tasks, True, hi=alike, key=lambda task: task is not self.task)

    def _run_block(
        self, raws: Raws, y: F64, weight: F64 | None, moment: Moment, recorded: BlockEntry | None = None
    ) -> tuple[BlockEntry, Forecasts]:
        """Learn a block; a replay takes the choices and promises of the `recorded` one."""
        choices, promises = (None, None) if recorded is None else (recorded.choices, recorded.promises)
        assert self.learner is not None
        assert self.task is not None
        before = self.learner.lags if self.warmup is not None and self.task.spec.lags else None
        preparation = None if self.preparation is None else self.preparation.copy()
        X = np.zeros((len(raws), 1)) if preparation is None else preparation.learn_rows(raws)
        # A stand-in ignores weights.
        info = self.learner.run(X, y, choices=choices, weight=None if preparation is None else weight)
        self.preparation = preparation
        kept = None
        if self.coverage is not None:
            forecasts = forecasts_of(info.values, info.probabilities)
            promises = self.coverage.learn_rows(self.task, forecasts, y, promises)
            kept = promises[0] <= promises[1]
        losses, errors = self.task.judge.block(info, y)
        windowed = self._windowed_errors(errors, self.history.ends(len(errors)))
        self.card.run(losses, errors, kept)
        self.history.run(self.task, LivedRows(y, losses, errors, info, kept), moment, self._numbers)
        if self.pairing is not None:
            for error in errors.tolist():
                self.pairing.add(error, is_of_numbers=not self.task.truths.is_classifier)
        self.history.check_threshold(windowed)
        if self.warmup is not None:
            self.warmup.add_rows(raws, None if before is None else lag_rows(before, y)[:-1], y, weight)
        Q = info.probabilities
        classes = NamedClasses.of(Q, y) if self.task.truths.has_classes and Q is not None else None
        given = Forecasts(info.values, Q, None if promises is None else promises[1])
        return BlockEntry(raws, y, info.values, info.choices, ARITHMETIC, promises, moment, classes, weight), given

    def replay(self, blob: bytes) -> None:
        """Learn a journal entry. Raises StateCorrupt if it cannot be read, or does not reproduce the recorded forecasts."""
        note, body = split_note(blob)
        entry = decode_entry(body)
        try:
            if self.pairing is not None:
                self.pairing.take(note)
            if isinstance(entry, RoundEntry):
                self._replay_round(entry)
            elif self.learner is None:
                raise StateFormatError("the first round cannot be a block")
            else:
                found, _ = self._run_block(entry.raws, entry.y, entry.weight, entry.moment, entry)
                self._compare(found.values, entry.values, entry.arithmetic, self.learner)
        except (StateError, InputError, InvalidInput) as error:
            raise StateCorrupt(f"Round {self.t + 1} of {self.definition.name!r} does not replay: {error}") from error

    def _replay_round(self, entry: RoundEntry) -> None:
        task, found = task_after(self.definition, self.task, entry.discovery)
        if found is None and self.preparation is not None:
            # Nothing new was found at this round.
            found = self.spec
        fixed = Fixed(entry.issued, entry.lags, entry.promise, entry.trivial, entry.choices, found)
        pending = self.play(entry.x, entry.y, task, weight=entry.weight, moment=entry.moment, fixed=fixed)
        value, recorded = pending.entry.value, entry.value
        # Written so that NaN or infinity on either side is never close.
        if not abs(value - recorded) < REPLAY_TOLERANCE * max(1.0, abs(recorded)):
            self._compare(np.array([value]), np.array([recorded]), entry.arithmetic, pending.learned())
        self.learn(pending)

    def _compare(self, values: F64, recorded: F64, computed_by: int, after: HostedLearner) -> None:
        self.divergence = max(self.divergence, divergence_of(values, recorded, computed_by, after))

    # -- copies -----------------------------------------------------------------------------------------------------

    def copy(self) -> Session:
        """A session in the same state, whose learning leaves this one unchanged, and vice versa."""
        twin = copy.copy(self)
        twin.warmup = None if self.warmup is None else self.warmup.copy()
        twin.preparation = None if self.preparation is None else self.preparation.copy()
        twin.learner = None if self.learner is None else self.learner.copy()
        twin.card = self.card.copy()
        twin.history = self.history.copy()
        twin.coverage = None if self.coverage is None else self.coverage.copy()
        twin.pairing = None if self.pairing is None else self.pairing.copy()
        return twin

    def describe(self) -> dict[str, float]:
        """The learner's description of its state."""
        return self.learner.describe() if self.learner is not None else {"t": 0, "dictionary": 0, "bytes": 0}


def _vector(preparation: Preparation | None, raw: Raw) -> F64:
    """The learner's input; a stand-in, which looks at none, gets a zero."""
    return np.zeros(1) if preparation is None else preparation.vector(raw)
