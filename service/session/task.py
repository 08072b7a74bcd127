"""What a session learns: the spec of its learner, its truths, and how forecasts are judged."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from okl.errors import WrongTruth
from okl_core import LearnerSpec, get_learner, parse_spec
from okl_core.contract.learned_half_life import has_learned_half_life
from okl_core.contract.learner import Learner, learner_kinds, parse_player, taken_dim
from okl_core.errors import ConfigError, DivergedError, StateFormatError
from okl_core.types import F64, LARGEST_AUTO_TRUTH, MAX_CLASSES, LearnerConfig

from ..pointers import invalid
from .definition import Definition, Scalar
from .inputs import shown
from .scorecard import Judge
from .truths import Truths, as_label


@dataclass(frozen=True, slots=True)
class Task:
    """What a session learns, by its definition and, where that leaves it open, the truths so far.

    `player`: the algorithm, or the pool that a half-life to be learned makes of it. `waits`: whether the inputs decide part
    of the spec. `is_open`: whether a new label adds a class.
    """

    spec: LearnerSpec
    algorithm: Learner[Any, Any, Any]
    config: LearnerConfig
    player: Learner[Any, Any, Any]
    player_config: LearnerConfig
    truths: Truths
    judge: Judge
    waits: bool
    is_open: bool = False

    @classmethod
    def of(cls, definition: Definition) -> Task | None:
        """The task by the definition; None if the first truth decides. Raises InvalidInput, ConfigError if it is invalid."""
        if definition.learner is not None:
            if definition.labels is None and _collects_labels(definition.learner):
                return _task(definition, definition.learner, (), is_open=True)
            return _task(definition, definition.learner, definition.labels)
        if definition.labels is not None:
            return _task(definition, CLASSES, definition.labels)
        return None if definition.y_range is None else _task(definition, NUMBERS, None)

    @classmethod
    def of_truths(cls, definition: Definition, seen: Sequence[Scalar] | None) -> Task:
        """The task of a definition that leaves the truths open, from the labels seen, in order, or None for numbers."""
        return _task(definition, CLASSES if seen is not None else NUMBERS, seen, is_open=seen is not None)

    @property
    def radius(self) -> float | None:
        """The radius of the ball in which the learner wants its inputs."""
        return self.algorithm.input_radius(self.config)

    @property
    def dims(self) -> int | None:
        """The only number of columns that the learner takes; None for any."""
        taken = taken_dim(self.algorithm, self.config)
        return None if taken is None else taken - self.spec.lags

    @property
    def stand_in(self) -> LearnerSpec:
        """The spec of the forecaster that answers until the learner can be made: it ignores inputs, but keeps the lags."""
        if self.truths.has_classes:
            config = {} if self.is_open else {"classes": len(self.truths.names)}
            return LearnerSpec(kind="frequencies", config=config)
        return LearnerSpec(kind="majority" if self.truths.is_classifier else "mean", lags=self.spec.lags)

    def initial_bytes(self, columns: int) -> int:
        """The least memory of a learner of this many columns. May raise ConfigError."""
        return self.player.initial_bytes(self.player_config, columns + self.spec.lags)

    def read_truth(self, y: Scalar) -> tuple[float, Task]:
        """A truth in the learner's terms, and the task that knows it. Raises InvalidInput, DivergedError."""
        if self.is_open and self.truths.index_of(y) is None:
            if len(self.truths.names) >= MAX_CLASSES:
                raise invalid("/y", f"is {shown(y)}, and there are {MAX_CLASSES} labels already", WrongTruth)
            return float(len(self.truths.names)), self.with_label(y)
        truth = self.truths.to_learner(y)
        if self.waits and abs(truth) > LARGEST_AUTO_TRUTH:
            # A stand-in would take it, but the learner made from it would not.
            raise DivergedError(f"a truth is beyond {LARGEST_AUTO_TRUTH:.0e}; scale the truths down", "y")
        return truth, self

    def read_truths(self, ys: Sequence[Scalar] | F64) -> F64 | None:
        """n ordinary truths in the learner's terms, shape (n,); None if any needs `read_truth`."""
        y = self.truths.to_learner_rows(ys)
        return None if y is None or (self.waits and np.abs(y).max(initial=0.0) > LARGEST_AUTO_TRUTH) else y

    def with_label(self, label: Scalar) -> Task:
        """The task with one more label."""
        truths = replace(self.truths, labels=(*self.truths.names, as_label(label)))
        return replace(self, truths=truths, judge=replace(self.judge, truths=truths))


CLASSES = LearnerSpec(kind="auto", config={"truth": "classes"})
NUMBERS = LearnerSpec(kind="auto", config={"truth": "numbers"})
"""The learners of sessions that name none."""


def read_truth(definition: Definition, task: Task | None, y: Scalar) -> tuple[float, Task]:
    """A truth in the learner's terms, and the task that knows it; the first truth may decide the task."""
    if task is None:
        task = Task.of_truths(definition, () if isinstance(y, bool | str) else None)
    return task.read_truth(y)


def check_weights(task: Task) -> None:
    """Raises InvalidInput for a learner that takes no weights; its stand-in would not refuse them."""
    # A learner that waits for inputs becomes the pool later.
    kind = "pool" if has_learned_half_life(task.spec.config) else task.spec.kind
    if not get_learner(kind).takes_weights:
        known = ", ".join(one for one in learner_kinds() if get_learner(one).takes_weights)
        why = ', and a half-life that is "learned" makes one' if kind == "pool" else ""
        raise invalid("/weight", f"{kind} takes no weights{why}; these learners do: {known}")


def discovery_of(before: Task | None, after: Task, found: LearnerSpec | None) -> bytes:
    """What a round made known, for its journal entry: a truth that changed the task, a spec; empty if nothing."""
    discovered: dict[str, Any] = {}
    if after is not before:
        discovered = {"label": after.truths.names[-1]} if after.is_open else {"numbers": True}
    if found is not None and after.waits:
        discovered["config"] = found.config
    return json.dumps(discovered).encode() if discovered else b""


def task_after(definition: Definition, task: Task | None, discovery: bytes) -> tuple[Task, LearnerSpec | None]:
    """The task after a round that made this known, and the spec that was found in it. Raises StateFormatError."""
    try:
        discovered = json.loads(discovery) if discovery else {}
        config = discovered.pop("config", None)
        if "label" in discovered and (task is None or task.is_open):
            task = (task or Task.of_truths(definition, ())).with_label(discovered["label"])
        elif "numbers" in discovered and task is None:
            task = Task.of_truths(definition, None)
        elif discovered or (discovery and config is None):
            raise StateFormatError("the discovery of a round was known, or is empty")
        if task is None:
            raise StateFormatError("the first round does not say what its truth is")
        return task, None if config is None else task.spec.model_copy(update={"config": config})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StateFormatError(f"the discovery of a round cannot be read: {error}") from error


def _task(definition: Definition, spec: LearnerSpec, labels: Sequence[Scalar] | None, *, is_open: bool = False) -> Task:
    if not is_open and labels is not None:
        spec = _with_classes(spec, len(labels))
    parsed, algorithm, config = parse_spec(spec)
    # Metrics judge the player, even if it is made only after a warm-up.
    player, played = parse_player(parsed)
    names = None if labels is None else tuple(labels)
    truths = Truths(player.target(played), names, definition.y_range, player.truth_range(played))
    _check(definition, spec, truths, is_open)
    judge = Judge(player.loss(played), truths, partial(player.probability, played))
    return Task(parsed, algorithm, config, player, played, truths, judge, bool(config.waiting()), is_open)


def _collects_labels(spec: LearnerSpec) -> bool:
    """Whether the learner takes classes that it has not seen."""
    _, algorithm, config = parse_spec(spec)
    return algorithm.target(config) == "class" and getattr(config, "classes", 0) is None


def _with_classes(spec: LearnerSpec, labels: int) -> LearnerSpec:
    """Set `classes` to the number of labels for a learner of classes whose config leaves it out."""
    if "classes" in spec.config or "classes" not in get_learner(spec.kind).config_type.model_fields:
        return spec
    filled = spec.model_copy(update={"config": spec.config | {"classes": labels}})
    try:
        _, algorithm, config = parse_spec(filled)
    except ConfigError:
        # A pool of labels has no classes. If the spec is wrong even without them, the error with them is raised.
        with contextlib.suppress(ConfigError):
            parse_spec(spec)
            return spec
        raise
    return filled if algorithm.target(config) == "class" else spec


def _check(definition: Definition, spec: LearnerSpec, truths: Truths, is_open: bool) -> None:
    if definition.y_range is not None and truths.target in ("binary", "class"):
        raise invalid("/y_range", f"{spec.kind} with this config takes labels, not numbers" + _of_numbers(spec))
    if definition.labels is None or is_open:
        return
    (low, high), count = truths.taken, len(definition.labels)
    if truths.target == "class":
        if count != high + 1.0:
            detail = f"{spec.kind} has {high + 1.0:.0f} classes, and the session {count} labels; leave `classes` out"
            raise ConfigError(detail, [(("config", "classes"), detail)])
    elif count > 2:
        detail = f"has {count} labels, and {spec.kind} takes two; a learner of more: "
        raise invalid("/labels", detail + _of_more(spec))
    elif not low <= -1.0 < 1.0 <= high:
        detail = f"the learner takes {low} to {high}, labels are -1 and 1 to it: widen its `clip` or `truth_range`"
        raise invalid("/labels", detail)


def _of_numbers(spec: LearnerSpec) -> str:
    """The end of a message: the JSON of this learner with the option by which it takes numbers; empty if it has none."""
    for option in ({"truth": "numbers"}, {"loss": "squared"}):
        document = {"kind": spec.kind, "config": spec.config | option}
        with contextlib.suppress(ConfigError):
            _, algorithm, config = parse_spec(document)
            if algorithm.target(config) in ("real", "any"):
                return f"; of numbers: {json.dumps(document)}"
    return ""


def _of_more(spec: LearnerSpec) -> str:
    """The JSON of a learner of many labels, built from this one if possible."""
    member = {"kind": spec.kind, "config": spec.config}
    wrapped = {"kind": "one-vs-rest", "config": {"member": member}}
    for document in (member | {"config": spec.config | {"truth": "classes"}}, wrapped):
        with contextlib.suppress(ConfigError):
            parse_spec(document)
            return json.dumps(document)
    return json.dumps({"kind": "one-vs-rest"})
