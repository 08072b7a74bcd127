"""One session's brain: inputs, learner and metrics as one thing that plays, learns and replays. No I/O, no clock.

Everything that depends on the past is here, and follows from the journal alone: the layout that the first round fixed, the
warm-up, the learner, the metrics. A round is played (pure), made durable by the caller, and then learned.

During a warm-up (for `scale: warmup` or `sigma: "median"`) a trivial forecaster answers. Its last round scales the inputs,
resolves sigma, makes the learner and runs it over the warm-up, so that no round is lost to it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

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
    restore,
    waits_for_inputs,
)
from okl_core.errors import ConfigError, InputError, ReplayDivergence, StateError, StateFormatError
from okl_core.freezing import Rule
from okl_core.growing import GrowingArray
from okl_core.learner import given_probabilities, taken_dim
from okl_core.online import REPLAY_TOLERANCE
from okl_core.state import from_bytes, to_bytes
from okl_core.types import F64, Forecast, Round
from service.errors import InvalidInput, StateCorrupt, WrongDimension
from service.inputs import Layout, Scaling, Truths, invalid
from service.journal import BlockEntry, RoundEntry, decode_entry, encode_block, encode_round
from service.schemas import Feature, Frozen, RangesScale, SessionCreate, WarmupScale
from service.scorecard import Issued, Judge, Scorecard

AnyLearner = OnlineLearner | ReservoirLearner | FrozenLearner


@dataclass(frozen=True, slots=True)
class Pending:
    """A played round that is not learned yet. `entry` is what the journal keeps of it; `successor` is the learner that the
    last round of a warm-up makes."""

    entry: RoundEntry
    played: Round
    layout: Layout
    loss: float
    error: float
    successor: AnyLearner | None


class HostedLearner:
    """`settings` is the request that created the session."""

    def __init__(self, settings: SessionCreate) -> None:
        self.settings = settings
        self.spec, algorithm, config = parse_spec(_spec_of(settings))
        self._algorithm, self._config = algorithm, config
        self._dims = taken_dim(algorithm, config)
        self._radius = algorithm.input_radius(config)
        self.truths = Truths(algorithm.target(config), settings.labels, settings.y_range, algorithm.truth_range(config))
        self._check_truths()
        self._judge = Judge(algorithm.loss(config), self.truths)
        self.layout: Layout | None = None
        if settings.features is not None:
            self.layout = Layout.of_features(settings.features)
        elif settings.dim is not None:
            self.layout = Layout(settings.dim)
        if self.layout is not None:
            self._check_taken(self.layout.dim, "/dim" if settings.features is None else "/schema")
        self._scaling: Scaling | None = None
        if isinstance(settings.scale, RangesScale):
            self._scaling = Scaling(np.array(settings.scale.low), np.array(settings.scale.high), self._radius)
            if self.layout is not None and self.layout.dim != len(settings.scale.low):
                raise invalid(
                    "/scale/low", f"has {len(settings.scale.low)} numbers; there are {self.layout.dim} inputs"
                )
        self.warming_up = isinstance(settings.scale, WarmupScale) or waits_for_inputs(self.spec)
        self._warm: GrowingArray | None = None
        self._learner: AnyLearner | None = None
        self.frozen: Frozen | None = None
        self.card = Scorecard()

    def _check_truths(self) -> None:
        truths, settings = self.truths, self.settings
        if settings.y_range is not None and truths.target in ("binary", "class"):
            raise invalid("/y_range", f"{self.spec.kind} takes labels, not numbers")
        if settings.labels is None:
            return
        (low, high), count = truths.taken, len(settings.labels)
        if truths.target == "class":
            if count != high + 1.0:
                told = f"{self.spec.kind} has {high + 1.0:.0f} classes, and the session {count} labels; leave `classes` out"
                raise ConfigError(told, [(("config", "classes"), told)])
        elif count > 2:
            told = f"has {count} labels, and {self.spec.kind} takes two; a learner of more wraps one of two: "
            raise invalid("/labels", told + json.dumps(_wrapped(self.spec)))
        elif not low <= -1.0 < 1.0 <= high:
            raise invalid(
                "/labels",
                f"the learner takes {low} to {high}, labels are -1 and 1 to it: widen its `clip` or `truth_range`",
            )

    @property
    def t(self) -> int:
        """Rounds learned."""
        return self.card.rounds if self.frozen is None or self._learner is None else self._learner.t

    @property
    def nbytes(self) -> int:
        """Memory of the learner."""
        learner = 0 if self._learner is None else self._learner.nbytes
        return learner + (0 if self._warm is None else self._warm.nbytes)

    def initial_bytes(self, dim: int) -> int:
        """What the learner of this many inputs takes at least, the warm-up's apart."""
        return self._algorithm.initial_bytes(self._config, dim + self.spec.lags)

    @property
    def lags(self) -> F64 | None:
        """The truths that go with the next input, in the learner's terms, newest first; None for a learner without."""
        if not self.spec.lags:
            return None
        return np.zeros(self.spec.lags) if self._learner is None else self._learner.lags

    # -- inputs ---------------------------------------------------------------------------------------------------

    def read_input(self, x: Any) -> tuple[F64, bytes]:
        """The vector of an input, and the note that tells a later round its layout (empty once the layout is fixed).

        Raises InvalidInput.
        """
        layout = self.layout
        if layout is not None:
            return layout.vector(x), b""
        layout = Layout.infer(x)
        self._check_dim(layout.dim)
        self._check_taken(layout.dim, "/x", WrongDimension)
        return layout.vector(x), _encode_layout(layout)

    def _settle_layout(self, x: F64, note: bytes) -> Layout:
        """The layout of a round. Raises InvalidInput if the prediction was made under another one."""
        layout = _decode_layout(note) if note else Layout(len(x)) if self.layout is None else self.layout
        if self.layout is not None and (layout != self.layout or len(x) != layout.dim):
            raise invalid("/x", "this session's first round fixed other inputs after this prediction was made")
        return layout

    def _check_dim(self, dim: int) -> None:
        if self._scaling is not None and len(self._scaling.low) != dim:
            told = f"has {dim} inputs; this session's `scale` has {len(self._scaling.low)}"
            raise invalid("/x", told, WrongDimension)

    def _check_taken(self, dim: int, pointer: str, kind: type[InvalidInput] = InvalidInput) -> None:
        """Found out now: during a warm-up another learner answers."""
        if self._dims is not None and dim + self.spec.lags != self._dims:
            raise invalid(pointer, f"{dim} inputs; this learner takes {self._dims - self.spec.lags}", kind)

    def _scaled(self, X: F64) -> F64:
        return X if self._scaling is None else self._scaling(X)

    # -- rounds ---------------------------------------------------------------------------------------------------

    def forecast(self, x: F64) -> Forecast:
        """The forecast for a vector of `read_input`, at the present state."""
        return self._active(len(x)).predict(self._scaled(x))

    def play(
        self,
        x: F64,
        y: float,
        *,
        at: float,
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
        played = self._active(len(x)).play(self._scaled(x), y, choices=None if self.warming_up else choices, lags=lags)
        issued = Issued.of(played.forecast, y) if issued is None else issued
        successor, made = self._successor(x, lags, y, choices)
        choices, note = made or played.choices, b"" if self.layout else note
        entry = RoundEntry(at, x, y, issued.value, played.forecast.value, choices, note, lags, issued.label)
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
        if not self.warming_up:
            return
        if self._warm is None:
            self._warm = GrowingArray(self.layout.dim + self.spec.lags + 1)
        self._warm.append(_warm_row(entry.x, entry.lags, entry.y))
        if pending.successor is not None:
            self._end_warmup(pending.successor)

    def run(self, X: F64, y: F64, *, at: float, note: bytes = b"") -> tuple[list[tuple[int, bytes]], F64, F64 | None]:
        """n rounds in order, learned at once: (rounds, journal bytes) of each entry, the values and the probabilities.

        The state has changed when this returns: a caller that cannot make the entries durable must drop this object.
        """
        entries: list[tuple[int, bytes]] = []
        forecasts: list[Forecast] = []
        start = 0
        while start < len(y) and (self.warming_up or self.layout is None):
            pending = self.play(X[start], float(y[start]), at=at, note=note)
            self.learn(pending)
            entries.append((1, encode_round(pending.entry)))
            forecasts.append(pending.played.forecast)
            start += 1
        values, probabilities = np.array([forecast.value for forecast in forecasts]), given_probabilities(forecasts)
        if start == len(y):
            return entries, values, probabilities
        # A learner that came with the first round would be forgotten with it.
        self._ensure_learner()
        info = self._active(X.shape[1]).run(self._scaled(X[start:]), y[start:])
        self.card.add_many(*self._judge.block(info, y[start:]))
        entries.append((len(y) - start, encode_block(BlockEntry(at, X[start:], y[start:], info.values, info.choices))))
        if start == 0:
            return entries, info.values, info.probabilities
        parts = [probabilities, info.probabilities]
        given = [part for part in parts if part is not None]
        return entries, np.append(values, info.values), np.concatenate(given) if len(given) == len(parts) else None

    def replay(self, blob: bytes) -> None:
        """Learn a journal entry. Raises StateCorrupt if it cannot be read, or does not give what was recorded."""
        entry = decode_entry(blob, self.spec.lags)
        try:
            if isinstance(entry, RoundEntry):
                self._replay_round(entry)
            else:
                self._replay_block(entry)
        except (StateError, InputError, InvalidInput) as error:
            raise StateCorrupt(f"Round {self.t + 1} of {self.settings.name!r} does not replay: {error}") from error

    def _replay_round(self, entry: RoundEntry) -> None:
        pending = self.play(
            entry.x,
            entry.y,
            at=entry.at,
            issued=Issued(entry.issued, entry.label),
            note=entry.note,
            choices=entry.choices,
            lags=entry.lags,
        )
        _check_replay(np.array([pending.entry.value]), np.array([entry.value]))
        self.learn(pending)

    def _replay_block(self, entry: BlockEntry) -> None:
        self._ensure_learner()
        info = self._active(entry.X.shape[1]).run(self._scaled(entry.X), entry.y, choices=entry.choices)
        _check_replay(info.values, entry.values)
        self.card.add_many(*self._judge.block(info, entry.y))

    # -- the learner and its warm-up --------------------------------------------------------------------------------

    def _active(self, dim: int) -> AnyLearner:
        """The learner; a fresh one of this dimension before the first round."""
        return self._learner or self._fresh(dim)

    def _ensure_learner(self) -> None:
        if self._learner is None and self.layout is not None:
            self._learner = self._fresh(self.layout.dim)

    def _fresh(self, dim: int) -> AnyLearner:
        return create(self._stand_in, dim) if self.warming_up else self._create(self.spec, dim)

    def _create(self, spec: LearnerSpec, dim: int) -> AnyLearner:
        return ReservoirLearner.create(spec, dim) if self.settings.reservoir else create(spec, dim)

    @property
    def _stand_in(self) -> LearnerSpec:
        # It looks at no input, and keeps the lags for those that do.
        if self.truths.classes:
            config = {"classes": self.truths.classes, "member": {"kind": "majority"}}
            return LearnerSpec(kind="one-vs-rest", config=config)
        return LearnerSpec(kind="majority" if self.truths.is_classifier else "mean", lags=self.spec.lags)

    def ends_warmup(self, rounds: int) -> bool:
        """Is the last round of a warm-up among the next ones? It learns from all before it."""
        return self.warming_up and self.t + rounds >= self.settings.warmup_rounds

    def _successor(self, x: F64, lags: F64 | None, y: float, choices: bytes | None) -> tuple[AnyLearner | None, bytes]:
        """The learner after the warm-up and the choices of its run, if this is the last round of one."""
        if not self.ends_warmup(1) or self._warm is None:
            return None, b""
        rows = np.vstack([self._warm.view, _warm_row(x, lags, y)])
        X, own_lags, truths = rows[:, : len(x)], rows[:, len(x) : -1], rows[:, -1]
        X = Scaling.of(X, self._radius)(X) if isinstance(self.settings.scale, WarmupScale) else self._scaled(X)
        learner = self._create(resolve(self.spec, X, truths, lags=own_lags), len(x))
        return learner, learner.run(X, truths, choices=choices, lags=own_lags).choices

    def _end_warmup(self, successor: AnyLearner) -> None:
        assert self._warm is not None
        if isinstance(self.settings.scale, WarmupScale):
            self._scaling = Scaling.of(self._warm.view[:, : successor.dim], self._radius)
        self.spec = successor.spec
        self._learner = successor
        self._warm = None
        self.warming_up = False

    # -- freezing ---------------------------------------------------------------------------------------------------

    def freeze(self, name: str, rule: Rule) -> HostedLearner:
        """A session of this name that predicts as this one does now, or did before a round drawn uniformly, and learns
        nothing. Raises StateError where there is nothing to freeze yet.
        """
        if isinstance(self._learner, FrozenLearner):
            raise StateError("it is frozen already")
        if self.warming_up:
            raise StateError(f"its warm-up takes {self.settings.warmup_rounds} rounds, and {self.t} were learned")
        if self._learner is None:
            raise StateError("it has learned no round yet")
        if rule == "uniform" and not self.settings.reservoir:
            raise StateError('it keeps no state to draw; create sessions with `"reservoir": true` for that')
        twin = HostedLearner(self.settings.model_copy(update={"name": name, "reservoir": False}))
        twin.spec, twin.layout, twin._scaling, twin.warming_up = self.spec, self.layout, self._scaling, False
        twin._learner = freeze(self._learner, rule)
        twin.frozen = Frozen(session=self.settings.name, t=self.t, rule=rule)
        return twin

    # -- state ------------------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, float]:
        return self._learner.describe() if self._learner is not None else {"t": 0, "dictionary": 0, "bytes": 0}

    def metrics(self) -> dict[str, Any]:
        return self.card.report(classifier=self.truths.is_classifier)

    def to_bytes(self) -> bytes:
        """A snapshot: with the settings it is everything."""
        arrays = {f"card.{name}": array for name, array in self.card.pack().items()}
        if self._learner is not None:
            arrays |= {f"learner.{name}": array for name, array in self._learner.state().items()}
        if self._warm is not None:
            arrays["warm"] = self._warm.pack()
        if self._scaling is not None:
            arrays |= {"scaling.low": self._scaling.low, "scaling.high": self._scaling.high}
        layout = None if self.layout is None else json.loads(_encode_layout(self.layout))
        spec = self.spec.model_dump(mode="json")
        meta = {"t": self.t, "warming_up": self.warming_up, "spec": spec, "layout": layout}
        return to_bytes(arrays, meta if self.frozen is None else meta | {"frozen": self.frozen.model_dump()})

    @classmethod
    def from_bytes(cls, settings: SessionCreate, blob: bytes) -> HostedLearner:
        """Raises StateCorrupt."""
        hosted = cls(settings)
        try:
            arrays, meta = from_bytes(blob)
            hosted.card = Scorecard.unpack(_part(arrays, "card"))
            hosted.warming_up = meta["warming_up"]
            hosted.spec = LearnerSpec.model_validate(meta["spec"])
            if meta["layout"] is not None:
                hosted.layout = _decode_layout(json.dumps(meta["layout"]).encode())
            if "frozen" in meta:
                hosted.frozen = Frozen.model_validate(meta["frozen"])
            if hosted.layout is not None and (hosted.t > 0 or hosted.frozen is not None):
                hosted._learner = hosted._restore(_part(arrays, "learner"), hosted.layout.dim)
            if "warm" in arrays:
                hosted._warm = GrowingArray.unpack(arrays["warm"])
            if "scaling.low" in arrays:
                hosted._scaling = Scaling(arrays["scaling.low"], arrays["scaling.high"], hosted._radius)
        except (StateError, KeyError, ValueError) as error:
            raise StateCorrupt(f"The snapshot of {settings.name!r} cannot be read: {error}") from error
        return hosted

    def _restore(self, arrays: dict[str, F64], dim: int) -> AnyLearner:
        if self.warming_up:
            return restore(self._stand_in, arrays, dim)
        if self.settings.reservoir:
            return ReservoirLearner.restore(self.spec, arrays, dim)
        learner = restore(self.spec, arrays, dim)
        return learner if self.frozen is None else FrozenLearner(learner, self.frozen.rule)


def _spec_of(settings: SessionCreate) -> LearnerSpec:
    """The session's spec: a learner of classes whose config leaves `classes` out has as many as there are labels."""
    spec = settings.learner
    is_left_out = settings.labels is not None and "classes" not in spec.config
    if not is_left_out or "classes" not in get_learner(spec.kind).config_type.model_fields:
        return spec
    return spec.model_copy(update={"config": spec.config | {"classes": len(settings.labels or ())}})


def _wrapped(spec: LearnerSpec) -> dict[str, Any]:
    """A spec of a learner of many labels, made of this one where it can be."""
    try:
        wrapped = {"kind": "one-vs-rest", "config": {"member": {"kind": spec.kind, "config": spec.config}}}
        parse_spec(wrapped)
    except ConfigError:
        wrapped = {"kind": "one-vs-rest"}
    return wrapped


def _part(arrays: dict[str, F64], prefix: str) -> dict[str, F64]:
    return {name[len(prefix) + 1 :]: array for name, array in arrays.items() if name.startswith(f"{prefix}.")}


def _warm_row(x: F64, lags: F64 | None, y: float) -> F64:
    """What a warm-up keeps of a round."""
    return np.concatenate((x, () if lags is None else lags, (y,)))


def _check_replay(values: F64, recorded: F64) -> None:
    # Written so that a NaN on either side is apart.
    close = np.abs(values - recorded) <= REPLAY_TOLERANCE * np.maximum(1.0, np.abs(recorded))
    if not close.all():
        i = int(np.argmin(close))
        raise ReplayDivergence(f"recorded {float(recorded[i])!r}, replayed {float(values[i])!r}")


def _encode_layout(layout: Layout) -> bytes:
    features = None if layout.features is None else [feature.model_dump() for feature in layout.features]
    return json.dumps({"dim": layout.dim, "features": features}, separators=(",", ":")).encode()


def _decode_layout(note: bytes) -> Layout:
    try:
        document = json.loads(note)
        if document["features"] is None:
            return Layout(document["dim"])
        return Layout.of_features([Feature.model_validate(feature) for feature in document["features"]])
    except (ValueError, KeyError, TypeError) as error:
        raise StateFormatError(f"the layout of the inputs cannot be read: {error}") from error
