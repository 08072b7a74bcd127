"""A session: inputs, learner and metrics as one thing that plays, learns and replays. No I/O, no clock.

All that depends on the past is here, and follows from the journal alone: the layout that the first round fixed, the warm-up,
the learner, the metrics. A round is played, which changes nothing, and then learned.

During a warm-up (for `scale: warmup` or `sigma: "median"`) a trivial forecaster answers. Its last round scales the inputs,
resolves sigma, makes the learner and runs it over the warm-up, so that no round is lost to it.
"""

from __future__ import annotations

import copy
import json
import zlib
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from okl_core import (
    FrozenLearner,
    LearnerSpec,
    OnlineLearner,
    ReservoirLearner,
    create,
    freeze,
    get_learner,
    parse_spec,
    resolve,
    waits_for_inputs,
)
from okl_core.contract.facade import REPLAY_TOLERANCE, replay_tolerance
from okl_core.contract.frozen import Rule
from okl_core.contract.learner import given_probabilities, taken_dim
from okl_core.errors import ConfigError, InputError, ReplayDivergence, StateError
from okl_core.linalg.arithmetic import arithmetic
from okl_core.types import F64, Forecast, Round
from service.errors import InvalidInput, StateCorrupt, WrongDimension
from service.session.codec import BlockEntry, RoundEntry, decode_entry, encode_block, encode_round
from service.session.definition import Definition, Input, Ranges
from service.session.layout import Layout, invalid
from service.session.scaling import Scaling
from service.session.scorecard import Issued, Judge, Scorecard
from service.session.truths import Truths
from service.session.warmup import Warmup

HostedLearner = OnlineLearner | ReservoirLearner | FrozenLearner

ARITHMETIC = zlib.crc32(arithmetic().encode())
"""Names what computes here, in each journal entry."""


@dataclass(frozen=True, slots=True)
class FrozenFrom:
    """What a frozen session was made from: the session, the rounds that it had observed, and which state was taken."""

    session: str
    t: int
    rule: Rule


class Pending(NamedTuple):
    """A played round that is not learned yet. `entry` is what the journal keeps of it; `successor` is the learner that the
    last round of a warm-up makes."""

    entry: RoundEntry
    played: Round
    layout: Layout
    loss: float
    error: float
    successor: OnlineLearner | ReservoirLearner | None


@dataclass(frozen=True, slots=True)
class Ran:
    """Rounds that were played and learned at once: (count, journal bytes) of each entry, and all forecasts in order."""

    entries: list[tuple[int, bytes]]
    values: F64
    probabilities: F64 | None
    loss: float


class Session:
    """Raises InvalidInput and ConfigError for a definition that makes no session."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.spec, algorithm, config = parse_spec(_spec_of(definition))
        self._algorithm, self._config = algorithm, config
        self._dims = taken_dim(algorithm, config)
        self.input_radius = algorithm.input_radius(config)
        self.truths = Truths(
            algorithm.target(config), definition.labels, definition.y_range, algorithm.truth_range(config)
        )
        self._check_truths()
        self._judge = Judge(algorithm.loss(config), self.truths)
        self.layout = Layout.declared(definition)
        if self.layout is not None:
            self._check_taken(self.layout.dim, "/dim" if definition.features is None else "/schema")
        self.scaling: Scaling | None = None
        if isinstance(definition.scale, Ranges):
            low, high = np.array(definition.scale.low), np.array(definition.scale.high)
            self.scaling = Scaling(low, high, self.input_radius)
            if self.layout is not None and self.layout.dim != len(low):
                raise invalid("/scale/low", f"has {len(low)} numbers; there are {self.layout.dim} inputs")
        warms_up = definition.scale == "warmup" or waits_for_inputs(self.spec)
        self.warmup = Warmup(definition.warmup_rounds, self.spec.lags) if warms_up else None
        self.learner: HostedLearner | None = None
        self.frozen: FrozenFrom | None = None
        self.card = Scorecard()
        self.divergence = 0.0
        """By how much the largest tolerated replay on another arithmetic was off."""

    def _check_truths(self) -> None:
        truths, definition = self.truths, self.definition
        if definition.y_range is not None and truths.target in ("binary", "class"):
            raise invalid("/y_range", f"{self.spec.kind} takes labels, not numbers")
        if definition.labels is None:
            return
        (low, high), count = truths.taken, len(definition.labels)
        if truths.target == "class":
            if count != high + 1.0:
                told = f"{self.spec.kind} has {high + 1.0:.0f} classes, and the session {count} labels; leave `classes` out"
                raise ConfigError(told, [(("config", "classes"), told)])
        elif count > 2:
            told = f"has {count} labels, and {self.spec.kind} takes two; a learner of more wraps one of two: "
            raise invalid("/labels", told + _wrapped(self.spec))
        elif not low <= -1.0 < 1.0 <= high:
            told = f"the learner takes {low} to {high}, labels are -1 and 1 to it: widen its `clip` or `truth_range`"
            raise invalid("/labels", told)

    @property
    def t(self) -> int:
        """Rounds learned."""
        return self.card.rounds if self.frozen is None or self.learner is None else self.learner.t

    @property
    def is_warming_up(self) -> bool:
        return self.warmup is not None

    @property
    def nbytes(self) -> int:
        """Memory of the learner and of the warm-up."""
        learner = 0 if self.learner is None else self.learner.nbytes
        return learner + (0 if self.warmup is None else self.warmup.nbytes)

    def initial_bytes(self, dim: int) -> int:
        """What the learner of this many inputs takes at least, the warm-up's apart. May raise ConfigError."""
        return self._algorithm.initial_bytes(self._config, dim + self.spec.lags)

    @property
    def lags(self) -> F64 | None:
        """The truths that go with the next input, in the learner's terms, newest first; None for a learner without."""
        if not self.spec.lags:
            return None
        return np.zeros(self.spec.lags) if self.learner is None else self.learner.lags

    def has_long_round(self, rounds: int) -> bool:
        """Does one of the next rounds do far more work than those around it?"""
        if self.warmup is not None and self.warmup.ends_within(rounds):
            return True
        return self.learner is not None and self.learner.has_long_round(rounds)

    # -- inputs ---------------------------------------------------------------------------------------------------

    def read_input(self, x: Input) -> tuple[F64, bytes]:
        """The vector of an input, and the note that tells a later round its layout (empty once the layout is fixed).

        Raises InvalidInput.
        """
        layout = self.layout
        if layout is not None:
            return layout.vector(x), b""
        layout = Layout.infer(x)
        self._check_dim(layout.dim)
        self._check_taken(layout.dim, "/x", WrongDimension)
        return layout.vector(x), layout.encode()

    def _settle_layout(self, x: F64, note: bytes) -> Layout:
        """The layout of a round. Raises InvalidInput if the prediction was made under another one."""
        layout = Layout.decode(note) if note else Layout(len(x)) if self.layout is None else self.layout
        if self.layout is not None and (layout != self.layout or len(x) != layout.dim):
            raise invalid("/x", "this session's first round fixed other inputs after this prediction was made")
        return layout

    def _check_dim(self, dim: int) -> None:
        if self.scaling is not None and len(self.scaling.low) != dim:
            told = f"has {dim} inputs; this session's `scale` has {len(self.scaling.low)}"
            raise invalid("/x", told, WrongDimension)

    def _check_taken(self, dim: int, pointer: str, kind: type[InvalidInput] = InvalidInput) -> None:
        """Found out now: during a warm-up another learner answers."""
        if self._dims is not None and dim + self.spec.lags != self._dims:
            raise invalid(pointer, f"{dim} inputs; this learner takes {self._dims - self.spec.lags}", kind)

    def _scaled(self, X: F64) -> F64:
        return X if self.scaling is None else self.scaling(X)

    # -- rounds ---------------------------------------------------------------------------------------------------

    def forecast(self, x: F64) -> Forecast:
        """The forecast for a vector of `read_input`, at the present state."""
        return self._active(len(x)).predict(self._scaled(x))

    def play(
        self,
        x: F64,
        y: float,
        *,
        issued: Issued | None = None,
        note: bytes = b"",
        choices: bytes | None = None,
        lags: F64 | None = None,
    ) -> Pending:
        """One round, nothing changed. `y` is in the learner's terms; `issued` is what the client was given, if anything,
        and `lags` those that went with it, if they are not the present ones.
        """
        layout = self._settle_layout(x, note)
        lags = self.lags if lags is None else lags
        played = self._active(len(x)).play(self._scaled(x), y, choices=None if self.warmup else choices, lags=lags)
        issued = Issued.of(played.forecast, y) if issued is None else issued
        successor, made = self._successor(x, lags, y, choices)
        choices, note = made or played.choices, b"" if self.layout else note
        value = played.forecast.value
        entry = RoundEntry(x, y, issued.value, value, choices, note, lags, issued.label, ARITHMETIC)
        loss, error = self._judge.round(issued, y)
        return Pending(entry, played, layout, loss, error, successor)

    def learn(self, pending: Pending) -> None:
        """Carry a played round into the state."""
        entry = pending.entry
        if self.layout is None:
            self.layout = pending.layout
        self._ensure_learner()
        self._active(self.layout.dim).learn(pending.played)
        self.card.add(pending.loss, pending.error)
        if self.warmup is None:
            return
        self.warmup.add(entry.x, entry.lags, entry.y)
        if pending.successor is not None:
            self._end_warmup(self.warmup, pending.successor)

    def run(self, X: F64, y: F64, *, note: bytes = b"") -> Ran:
        """n rounds in order, learned at once. A caller that cannot make the entries durable must drop this object."""
        entries: list[tuple[int, bytes]] = []
        forecasts: list[Forecast] = []
        start, before = 0, self.card.loss
        while start < len(y) and (self.warmup is not None or self.layout is None):
            pending = self.play(X[start], float(y[start]), note=note)
            self.learn(pending)
            entries.append((1, encode_round(pending.entry)))
            forecasts.append(pending.played.forecast)
            start += 1
        values, probabilities = np.array([forecast.value for forecast in forecasts]), given_probabilities(forecasts)
        if start == len(y):
            return Ran(entries, values, probabilities, self.card.loss - before)
        # A learner that came with the first round would be forgotten with it.
        self._ensure_learner()
        info = self._active(X.shape[1]).run(self._scaled(X[start:]), y[start:])
        self.card.add_many(*self._judge.block(info, y[start:]))
        block = BlockEntry(X[start:], y[start:], info.values, info.choices, arithmetic=ARITHMETIC)
        entries.append((len(y) - start, encode_block(block)))
        loss = self.card.loss - before
        if start == 0:
            return Ran(entries, info.values, info.probabilities, loss)
        given = [part for part in (probabilities, info.probabilities) if part is not None]
        return Ran(entries, np.append(values, info.values), np.concatenate(given) if len(given) == 2 else None, loss)

    def replay(self, blob: bytes) -> None:
        """Learn a journal entry. Raises StateCorrupt if it cannot be read, or does not give what was recorded."""
        entry = decode_entry(blob, self.spec.lags)
        try:
            if isinstance(entry, RoundEntry):
                self._replay_round(entry)
            else:
                self._replay_block(entry)
        except (StateError, InputError, InvalidInput) as error:
            raise StateCorrupt(f"Round {self.t + 1} of {self.definition.name!r} does not replay: {error}") from error

    def _replay_round(self, entry: RoundEntry) -> None:
        issued = Issued(entry.issued, entry.label)
        pending = self.play(entry.x, entry.y, issued=issued, note=entry.note, choices=entry.choices, lags=entry.lags)
        value, recorded = pending.entry.value, entry.value
        # Neither NaN nor infinity is close to anything, whichever of the two it is.
        if not abs(value - recorded) < REPLAY_TOLERANCE * max(1.0, abs(recorded)):
            self._check_replay(np.array([value]), np.array([recorded]), entry.arithmetic)
        self.learn(pending)

    def _replay_block(self, entry: BlockEntry) -> None:
        self._ensure_learner()
        info = self._active(entry.X.shape[1]).run(self._scaled(entry.X), entry.y, choices=entry.choices)
        self._check_replay(info.values, entry.values, entry.arithmetic)
        self.card.add_many(*self._judge.block(info, entry.y))

    def _check_replay(self, values: F64, recorded: F64, computed_by: int) -> None:
        """Raises ReplayDivergence beyond 1e-9, or beyond what the learner's conditioning explains on another arithmetic."""
        with np.errstate(invalid="ignore"):
            off = np.abs(values - recorded) / np.maximum(1.0, np.abs(recorded))
        # Written so that a NaN on either side is apart.
        if (off <= REPLAY_TOLERANCE).all():
            return
        i = int(np.argmin(off <= REPLAY_TOLERANCE))
        conditioning = 1.0 if self.learner is None else self.learner.conditioning
        if computed_by == ARITHMETIC or not (off <= replay_tolerance(conditioning)).all():
            raise ReplayDivergence(f"recorded {float(recorded[i])!r}, replayed {float(values[i])!r}")
        self.divergence = max(self.divergence, float(off.max()))

    # -- the learner and its warm-up --------------------------------------------------------------------------------

    def _active(self, dim: int) -> HostedLearner:
        """The learner; a fresh one of this dimension before the first round."""
        return self.learner or self._fresh(dim)

    def _ensure_learner(self) -> None:
        if self.learner is None and self.layout is not None:
            self.learner = self._fresh(self.layout.dim)

    def _fresh(self, dim: int) -> OnlineLearner | ReservoirLearner:
        return self._create(self.spec, dim) if self.warmup is None else create(self.stand_in, dim)

    def _create(self, spec: LearnerSpec, dim: int) -> OnlineLearner | ReservoirLearner:
        return ReservoirLearner.create(spec, dim) if self.definition.reservoir else create(spec, dim)

    @property
    def stand_in(self) -> LearnerSpec:
        # It looks at no input, and keeps the lags for those that do.
        if self.truths.classes:
            config = {"classes": self.truths.classes, "member": {"kind": "majority"}}
            return LearnerSpec(kind="one-vs-rest", config=config)
        return LearnerSpec(kind="majority" if self.truths.is_classifier else "mean", lags=self.spec.lags)

    def _successor(
        self, x: F64, lags: F64 | None, y: float, choices: bytes | None
    ) -> tuple[OnlineLearner | ReservoirLearner | None, bytes]:
        """The learner after the warm-up and the choices of its run, if this is the last round of one."""
        if self.warmup is None or not self.warmup.ends_within(1):
            return None, b""
        X, own_lags, truths = self.warmup.with_last(x, lags, y)
        X = Scaling.of(X, self.input_radius)(X) if self.definition.scale == "warmup" else self._scaled(X)
        learner = self._create(resolve(self.spec, X, truths, lags=own_lags), len(x))
        return learner, learner.run(X, truths, choices=choices, lags=own_lags).choices

    def _end_warmup(self, warmup: Warmup, successor: OnlineLearner | ReservoirLearner) -> None:
        if self.definition.scale == "warmup" and warmup.rows is not None:
            self.scaling = Scaling.of(warmup.rows.view[:, : successor.dim], self.input_radius)
        self.spec = successor.spec
        self.learner = successor
        self.warmup = None

    # -- copies -----------------------------------------------------------------------------------------------------

    def copy(self) -> Session:
        """A session in the same state; what one learns leaves the other as it is."""
        twin = copy.copy(self)
        twin.warmup = None if self.warmup is None else self.warmup.copy()
        twin.learner = None if self.learner is None else self.learner.copy()
        twin.card = self.card.copy()
        return twin

    def freeze(self, name: str, rule: Rule) -> Session:
        """A session of this name that predicts as this one does now, or did before a round drawn uniformly, and learns
        nothing. Raises StateError where there is nothing to freeze yet.
        """
        if isinstance(self.learner, FrozenLearner):
            raise StateError("it is frozen already")
        if self.warmup is not None:
            raise StateError(f"its warm-up takes {self.warmup.length} rounds, and {self.t} were learned")
        if self.learner is None:
            raise StateError("it has learned no round yet")
        if rule == "uniform" and not self.definition.reservoir:
            raise StateError('it keeps no state to draw; create sessions with `"reservoir": true` for that')
        twin = Session(replace(self.definition, name=name, reservoir=False))
        twin.spec, twin.layout, twin.scaling, twin.warmup = self.spec, self.layout, self.scaling, None
        twin.learner = freeze(self.learner, rule)
        twin.frozen = FrozenFrom(self.definition.name, self.t, rule)
        return twin

    def describe(self) -> dict[str, float]:
        """What the learner tells of itself."""
        return self.learner.describe() if self.learner is not None else {"t": 0, "dictionary": 0, "bytes": 0}


def _spec_of(definition: Definition) -> LearnerSpec:
    """The session's spec: a learner of classes whose config leaves `classes` out has as many as there are labels."""
    spec = definition.learner
    is_left_out = definition.labels is not None and "classes" not in spec.config
    if not is_left_out or "classes" not in get_learner(spec.kind).config_type.model_fields:
        return spec
    return spec.model_copy(update={"config": spec.config | {"classes": len(definition.labels or ())}})


def _wrapped(spec: LearnerSpec) -> str:
    """The JSON of a learner of many labels, made of this one where it can be."""
    wrapped = {"kind": "one-vs-rest", "config": {"member": {"kind": spec.kind, "config": spec.config}}}
    try:
        parse_spec(wrapped)
    except ConfigError:
        del wrapped["config"]
    return json.dumps(wrapped)
