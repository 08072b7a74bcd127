"""A learner of raw inputs, shared by the River and scikit-learn estimators.

It prepares inputs as a session of the service does. Fields, scale and learner are determined from the first rounds: after 8,
16, 32 and so on until the warm-up ends, and each time the learner learns those rounds again. Until the first of these a
trivial forecaster answers: label frequencies or the mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, final

import numpy as np

from okl._scores import probabilities_of
from okl.answers import Label, label_key
from okl.errors import NotFinite, WrongType
from okl.values import check_distinct, converted, frame_of
from okl_core import Forecast, LearnerSpec, create, parse_spec, resolve, restore
from okl_core.contract.arguments import checked_truth
from okl_core.contract.learner import taken_dim
from okl_core.contract.state import from_bytes, part_of, to_bytes
from okl_core.contract.truth_choice import for_truths
from okl_core.errors import ConfigError, LabelError, ShapeError, StateFormatError
from okl_core.records import record
from okl_core.records.kept import arrays_of, json_of, preparation_of
from okl_core.records.preparation import Preparation
from okl_core.records.record import Raw, flatten
from okl_core.records.survey import Survey
from okl_core.records.warmup import ROUNDS, Warmup
from okl_core.types import F64, REALS, Interval

LEAST_WARMUP_ROUNDS = 2
"""As in a session: one round has no scale."""

STAND_IN_INPUT = (0.0,)
"""Input of the trivial forecaster, which ignores it."""


def spec_of(learner: str, config: Mapping[str, Any] | None, seed: int, lags: int, *, has_labels: bool) -> LearnerSpec:
    """The spec for an estimator's parameters. Raises UnknownKind, and ConfigError if the learner cannot do the task."""
    given = {"kind": learner, "seed": seed, "lags": lags, "config": dict(config or {})}
    spec, algorithm, parsed = parse_spec(for_truths(given, has_labels=has_labels))
    target, (low, high) = algorithm.target(parsed), algorithm.truth_range(parsed)
    if has_labels and target == "real" and not low <= -1.0 < 1.0 <= high:
        raise ConfigError(f"{learner} learns numbers from {low} to {high}; labels are -1 and 1 to it: widen its range")
    if not has_labels and target not in ("real", "any"):
        raise ConfigError(f"{learner} with this config learns labels, and a regressor has to learn numbers")
    return spec


def learns_many_labels(spec: LearnerSpec) -> bool:
    """Whether the learner takes more than two labels."""
    _, algorithm, config = parse_spec(spec)
    return algorithm.target(config) == "class"


def has_probabilities(spec: LearnerSpec) -> bool:
    """Whether a classifier of this spec forecasts probabilities."""
    _, algorithm, config = parse_spec(spec)
    return algorithm.gives_probabilities(config)


def plain(value: Any) -> Any:
    """The value as the client would send it: NaN becomes None, a date ISO 8601 text, which is read as a time.

    Infinite numbers and values without a JSON form are kept, for the record to refuse.
    """
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        kind = tuple if isinstance(value, tuple) else list
        return kind(plain(entry) for entry in value)
    try:
        return converted(value)
    except NotFinite:
        return math.inf
    except WrongType:
        return value


def raw_of(x: Mapping[Any, Any]) -> Raw:
    """A flat record. Raises RecordError, which names the field."""
    try:
        return flatten(plain(x))
    except record.RecordError as error:
        if not error.path:
            raise
        raise type(error)(error.path, f"{'.'.join(map(str, error.path))}: {error}") from error


def rows_of(frame: Any) -> list[Raw]:
    """The rows of a data frame of any library that narwhals reads, as records.

    Raises WrongType for anything else, and for columns of one name, as 1 and "1" have in a record.
    """
    found = frame_of(frame)
    if not hasattr(found, "columns"):
        raise WrongType(f"Many records are a data frame, not {type(frame).__name__}.", errors=[])
    names = [str(name) for name in found.columns]
    check_distinct(names)
    return [raw_of(dict(zip(names, row, strict=True))) for row in found.iter_rows()]


class Units(NamedTuple):
    """The units of a learner's truths, in those of a regressor's: where they begin, and the size of one."""

    start: float = 0.0
    size: float = 1.0

    @classmethod
    def filling(cls, taken: Interval, least: float, largest: float) -> Units:
        """The units in which truths from `least` to `largest` fill the middle half of the range `taken`.

        Raises LabelError for truths so far apart that their difference overflows.
        """
        low, high = taken
        size = 2.0 * (largest - least or 1.0) / (high - low)
        if not math.isfinite(size):
            raise LabelError(f"y has truths from {least:g} to {largest:g}, too far apart: scale them down", "y")
        return cls((least + largest) / 2.0 - size * (low + high) / 2.0, size)


@final
class RecordLearner:
    """A learner with its preparation of inputs. `labels` are a classifier's, in the learner's order; None for a regressor.

    Labels may be added while it learns. If the learner accepts only truths within a range, a regressor's truths are rescaled:
    those of the warm-up fill the middle half of the range, and later ones are clipped to it. It pickles to plain data
    (`okl_core.contract.state`), never to code.
    """

    def __init__(self, spec: LearnerSpec, labels: Sequence[Label] | None, warmup_rounds: int = ROUNDS) -> None:
        if warmup_rounds < LEAST_WARMUP_ROUNDS:
            raise ValueError(f"warmup_rounds must be at least {LEAST_WARMUP_ROUNDS}, not {warmup_rounds}")
        self.spec, self._algorithm, self._config = parse_spec(spec)
        self.labels = None if labels is None else list(labels)
        self._indices = {label_key(label): i for i, label in enumerate(labels or ())}
        self._target = self._algorithm.target(self._config)
        self._classes = len(labels) if labels else self.spec.config.get("classes")
        self._taken = self._algorithm.truth_range(self._config)
        self._dim = taken_dim(self._algorithm, self._config)
        self._units = Units()
        self.t = 0
        self.preparation: Preparation | None = None
        self._warmup: Warmup | None = Warmup(warmup_rounds)
        self.learner = create(self._stand_in(), 1)

    # -- learning -----------------------------------------------------------------------------------------------------

    def learn(self, raws: Sequence[Raw], truths: Sequence[Any], *, is_all: bool = False) -> None:
        """Learn n rounds in order. `is_all`: no more rounds will follow soon, so the learner is created from these at once.

        Raises LabelError, InputError, ShapeError and the learner's errors.
        """
        if len(raws) != len(truths):
            raise ShapeError(f"there are {len(raws)} rows and {len(truths)} truths", "y")
        if self._dim is not None:
            for raw in raws:
                if len(raw) != self._dim - self.spec.lags:
                    raise ShapeError(f"{self.spec.kind} takes {self._dim - self.spec.lags} inputs, not {len(raw)}")
        start, n = 0, len(raws)
        while start < n and self._warmup is not None:
            with self._new_labels():
                if is_all:
                    start = self._learn_first(raws, truths)
                    break
                self._learn_warm(self._warmup, raws[start], self._known(truths[start]))
                start += 1
                self.t += 1
        if start < n:
            with self._new_labels():
                self._learn_rows(raws[start:], [self._known(truth) for truth in truths[start:]])
                self.t += n - start

    @contextmanager
    def _new_labels(self) -> Iterator[None]:
        """Forget labels added in this block if it fails before anything was learned."""
        known, learner, t = len(self.labels or ()), self.learner, self.learner.t
        try:
            yield
        except Exception:
            if self.labels is not None and (self.learner, self.learner.t) == (learner, t):
                for label in self.labels[known:]:
                    del self._indices[label_key(label)]
                del self.labels[known:]
            raise

    def _learn_first(self, raws: Sequence[Raw], truths: Sequence[Any]) -> int:
        """Learn the warm-up in one go, and return its number of rounds."""
        warmup = self._warmup
        assert warmup is not None
        n = min(len(raws), warmup.length - len(warmup))
        for raw, truth in zip(raws[:n], truths[:n], strict=True):
            warmup.add(raw, None, self._known(truth))
        self._make(warmup.raws, warmup.truths)
        if len(warmup) >= warmup.length:
            self._warmup = None
        self.t += n
        return n

    def _learn_warm(self, warmup: Warmup, raw: Raw, truth: float) -> None:
        is_last, is_made = warmup.is_last(raw), self.preparation is not None
        if warmup.is_stage(raw) or (is_made and self._has_new_label(truth)):
            self._make([*warmup.raws, raw], [*warmup.truths, truth])
        elif is_made:
            self._learn_rows([raw], [truth])
        else:
            self.learner.update(STAND_IN_INPUT, truth)
        warmup.add(raw, None, truth)
        if is_last:
            self._warmup = None

    def _learn_rows(self, raws: Sequence[Raw], truths: Sequence[float]) -> None:
        assert self.preparation is not None
        preparation = self.preparation.copy()
        X, y = preparation.learn_rows(list(raws)), self._to_learner(np.array(truths), self._units)
        if len(y) == 1:
            # A block of one row costs more than an update.
            self.learner.update(X[0], y.item())
        else:
            self.learner.run(X, y)
        self.preparation = preparation

    def _make(self, raws: Sequence[Raw], truths: Sequence[float]) -> None:
        """Create preparation and learner from these rounds, and learn them."""
        y, units = np.array(truths), self._units
        if self.labels is None and self._taken != REALS:
            units = Units.filling(self._taken, float(y.min()), float(y.max()))
        fields = Survey(is_strict=self._dim is not None).fields(raws)
        preparation = Preparation.found(fields, raws, self._algorithm.input_radius(self._config))
        X, y = preparation.learn_first(list(raws)), self._to_learner(y, units)
        learner = create(resolve(self._with_classes(), X, y), preparation.width)
        learner.run(X, y)
        self.preparation, self.learner, self._units = preparation, learner, units

    def _with_classes(self) -> LearnerSpec:
        """The spec; a learner with a fixed number of classes gets the number of labels seen so far."""
        field = self._algorithm.config_type.model_fields.get("classes")
        if self._target != "class" or field is None or "classes" in self.spec.config:
            return self.spec
        if self._classes is None and field.default is None:
            return self.spec
        return self.spec.model_copy(
            update={"config": self.spec.config | {"classes": max(2, self._classes or len(self.labels or ()))}}
        )

    def _stand_in(self) -> LearnerSpec:
        if self.labels is None:
            return LearnerSpec(kind="mean")
        known = self._classes if self._target == "class" else 2
        return LearnerSpec(kind="frequencies", config={} if known is None else {"classes": max(2, known)})

    # -- truths -------------------------------------------------------------------------------------------------------

    def _known(self, truth: Any) -> float:
        """The truth as a number: a label's index, where a new label gets the next one. Raises LabelError, InputError."""
        if self.labels is None:
            return checked_truth(truth, "real", REALS)
        index = self._indices.get(label_key(truth)) if isinstance(truth, Label) else None
        if index is None:
            if not isinstance(truth, Label):
                raise LabelError(f"a label is a string, a number or a boolean, not {truth!r}", "y")
            is_open = self._target == "class"
            new = [False, True] if isinstance(truth, bool) and not (is_open or self.labels) else [truth]
            most = self._classes if is_open else 2
            if is_open and self._warmup is None and (made := self._made_classes) is not None:
                most = made
            if most is not None and len(self.labels) + len(new) > most:
                problem = f"{truth!r} is one label more than the {most} that {self.spec.kind} tells apart"
                fix = "name `classes` in its config" if is_open else "one-vs-rest makes a learner of more of it"
                raise LabelError(f"{problem}; {fix}", "y")
            for label in new:
                self._indices[label_key(label)] = len(self.labels)
                self.labels.append(label)
            index = self._indices[label_key(truth)]
        return float(index)

    @property
    def _made_classes(self) -> int | None:
        """Number of classes of the current learner; None if it is unlimited."""
        return self.learner.spec.config.get("classes")

    def _has_new_label(self, truth: float) -> bool:
        return self._target == "class" and (known := self._made_classes) is not None and truth >= known

    def _to_learner(self, y: F64, units: Units) -> F64:  # (n,)
        """Truths in the learner's units, shape (n,)."""
        if self.labels is None:
            return y if self._taken == REALS else np.clip((y - units.start) / units.size, *self._taken)
        return y if self._target == "class" else 2.0 * y - 1.0

    # -- forecasts ----------------------------------------------------------------------------------------------------

    def forecast(self, raw: Raw) -> Forecast:
        """The forecast in the learner's units. Changes nothing."""
        if self.preparation is None:
            return self.learner.predict(STAND_IN_INPUT)
        return self.learner.predict(self.preparation.vector(raw))

    def value(self, raw: Raw) -> float:
        """The forecast of a regressor, in the units of its truths."""
        value = self.forecast(raw).value
        return value if self.preparation is None else self._units.start + self._units.size * value

    def label_index(self, forecast: Forecast) -> int:
        """Index of the label that a classifier predicts; at least one label must be known.

        Ties go to the first label, as in scikit-learn: a decision of 0 does not count for the second.
        """
        index = forecast.label if forecast.probabilities is not None else int(forecast.value > 0.0)
        return min(index, len(self.labels or ()) - 1)

    def probabilities(self, forecast: Forecast) -> F64 | None:
        """Probabilities of the labels, shape (K,), summing to one; None if the learner forecasts none."""
        K = len(self.labels or ())
        p = forecast.probabilities
        if p is None:
            if forecast.probability is None:
                return None
            p = (1.0 - forecast.probability, forecast.probability)
        return probabilities_of(p, K)

    # -- as bytes -----------------------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Approximate memory, in bytes."""
        kept = 0 if self._warmup is None else self._warmup.nbytes
        return self.learner.nbytes + kept + (0 if self.preparation is None else self.preparation.nbytes)

    def to_bytes(self) -> bytes:
        """The complete state as arrays and JSON, without code."""
        arrays: dict[str, Any] = {f"learner.{name}": array for name, array in self.learner.state().items()}
        preparation, warmup, length = self.preparation, self._warmup, None
        if preparation is not None:
            arrays |= arrays_of(preparation)
        if warmup is not None:
            length = warmup.length
            raws = [record.to_bytes(raw) for raw in warmup.raws]
            arrays["warm.raws"] = np.frombuffer(b"".join(raws), dtype=np.uint8)
            arrays["warm.sizes"] = np.array([len(raw) for raw in raws], dtype=np.int64)
            arrays["warm.truths"] = np.array(warmup.truths)
        meta = {
            "spec": self.spec.model_dump(mode="json"),
            "found": self.learner.spec.model_dump(mode="json"),
            "labels": self.labels,
            "classes": self._classes,
            "t": self.t,
            "units": list(self._units),
            "warmup": length,
            "prepared": None if preparation is None else json_of(preparation),
        }
        return to_bytes(arrays, meta)

    @classmethod
    def from_bytes(cls, blob: bytes) -> RecordLearner:
        """The learner of these bytes. Raises StateFormatError."""
        arrays, meta = from_bytes(blob)
        try:
            one = cls(LearnerSpec.model_validate(meta["spec"]), meta["labels"], meta["warmup"] or ROUNDS)
            one._classes, one.t = meta["classes"], meta["t"]
            one._units = Units(*meta["units"])
            if meta["prepared"] is not None:
                one.preparation = preparation_of(meta["prepared"], arrays)
            width = 1 if one.preparation is None else one.preparation.width
            one.learner = restore(LearnerSpec.model_validate(meta["found"]), part_of(arrays, "learner"), width)
            one._warmup = None if meta["warmup"] is None else _warmup_of(meta["warmup"], part_of(arrays, "warm"))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise StateFormatError(f"not the state of an estimator: {error}") from error
        return one

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordLearner.from_bytes, (self.to_bytes(),)


def _warmup_of(length: int, arrays: Mapping[str, Any]) -> Warmup:
    warmup, start, joined = Warmup(length), 0, arrays["raws"].tobytes()
    for size, truth in zip(arrays["sizes"].tolist(), arrays["truths"].tolist(), strict=True):
        warmup.add(record.from_bytes(joined[start : start + size]), None, truth)
        start += size
    return warmup
