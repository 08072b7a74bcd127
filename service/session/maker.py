"""How a session's learner is made: from the first input, or from all inputs of the warm-up so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from okl.errors import InvalidInput, NotFinite, WrongDimension
from okl_core import FrozenLearner, LearnerSpec, OnlineLearner, ReservoirLearner, create, resolve
from okl_core.errors import NumericalError, StateError
from okl_core.records.fields import Fields, number_of
from okl_core.records.preparation import Preparation
from okl_core.records.record import Raw, as_record
from okl_core.records.scaling import Scaling
from okl_core.records.survey import Survey
from okl_core.records.warmup import Rows
from okl_core.types import F64

from ..pointers import invalid
from .definition import Definition, Ranges
from .task import Task

HostedLearner = OnlineLearner | ReservoirLearner | FrozenLearner


class PreparedLearner(NamedTuple):
    """A learner and the preparation of its inputs; None for a stand-in, which looks at no input.

    `spec`: the requested spec. The learner's own may differ: a half-life that is learned makes it a pool.
    """

    preparation: Preparation | None
    learner: HostedLearner
    spec: LearnerSpec


@final
@dataclass(frozen=True, slots=True)
class Maker:
    """Makes the learners of one definition. Raises InvalidInput if the columns do not fit the scale or the learner."""

    definition: Definition
    survey: Survey

    @classmethod
    def of(cls, definition: Definition, task: Task | None) -> Maker:
        # If the number of columns is given, no column may join later.
        has_columns = isinstance(definition.scale, Ranges) or (task is not None and task.dims is not None)
        return cls(definition, replace(definition.survey, is_strict=definition.is_strict or has_columns))

    def declared_fields(self, task: Task | None) -> Fields | None:
        """The fields of all inputs, if the definition determines them."""
        definition = self.definition
        if definition.hashed is not None or (definition.is_strict and definition.schema is not None):
            fields = self.survey.fields([])
            self._check_columns(task, fields.width, "/schema" if definition.schema else "/hashed")
            return fields
        if definition.dim is not None:
            self._check_columns(task, definition.dim, "/dim")
        return None

    def fixed_fields(self, first: Raw) -> Fields | None:
        """The fields of all inputs, if the first one determines them."""
        return self.survey.fields([first]) if self.survey.is_strict else None

    def check_input(self, task: Task | None, raw: Raw) -> None:
        """Check the columns of an input before there is a learner, since a stand-in would take any."""
        columns = self.survey.fields([raw]).width if isinstance(raw, dict) and self.survey.is_strict else len(raw)
        self._check_columns(task, columns, "/x", WrongDimension)

    def check_size(self, raw: Raw, fields: Fields | None) -> None:
        """Refuse an input that a stand-in would take but the learner would not: no warm-up stage could complete with it."""
        scale = self.definition.scale
        if scale == "learned":
            return
        if isinstance(scale, Ranges):
            known = fields or self.survey.fields([raw])
            v = Scaling.of_ranges(np.array(scale.low), np.array(scale.high))(known.encode(raw))
        else:
            v = np.array([number_of(value) or 0.0 for value in as_record(raw).values()])
        with np.errstate(over="ignore"):
            is_fine = np.isfinite(v @ v)
        if not is_fine:
            raise invalid("/x", "the square of its norm must be finite, since it is not scaled to its size", NotFinite)

    def start(self, task: Task, fields: Fields | None, first: Raw) -> PreparedLearner:
        """Make the forecaster for the first round: a stand-in, or the learner itself."""
        if task.waits or self.definition.scale == "learned":
            return PreparedLearner(None, create(task.stand_in, 1), task.spec)
        preparation = self._prepared(task, fields, [first])
        return PreparedLearner(preparation, self._create(task.spec, preparation.width), task.spec)

    def remade(
        self,
        task: Task,
        fields: Fields | None,
        rows: Rows,
        choices: bytes | None,
        *,
        unless: tuple[Preparation | None, LearnerSpec | None],
        spec: LearnerSpec | None,
    ) -> tuple[PreparedLearner, bytes] | None:
        """A learner that has learned these rounds, and the choices of its run.

        None if the rounds lead to the present preparation and spec again, given as `unless`. A replay gives the recorded
        `spec`, since the search for it may end elsewhere on another processor. Raises NumericalError if the learner refuses
        the last round. It skips any other round that it refuses, because the client was already told that it was learned.
        """
        preparation = self._prepared(task, fields, rows.raws)
        maps_as_before = preparation.maps_alike(unless[0])
        X, truths = preparation.learn_first(rows.raws), np.array(rows.truths)
        spec = resolve(task.spec, X, truths, lags=rows.lags) if spec is None else spec
        if maps_as_before and spec == unless[1]:
            return None
        learner = self._create(spec, preparation.width)
        try:
            ran = learner.run(X, truths, choices=choices, lags=rows.lags, weight=rows.weights)
        except (NumericalError, StateError):
            kept = _learnable(create(spec, preparation.width), X, truths, rows)
            if kept.all():
                raise
            learner = self._create(spec, preparation.width)
            lags, weights = (None if part is None else part[kept] for part in (rows.lags, rows.weights))
            ran = learner.run(X[kept], truths[kept], choices=choices, lags=lags, weight=weights)
        return PreparedLearner(preparation, learner, spec), ran.choices

    def _prepared(self, task: Task, fields: Fields | None, raws: Sequence[Raw]) -> Preparation:
        """The preparation that these inputs determine: fields and scale."""
        fields, scale = fields or self.survey.fields(raws), self.definition.scale
        self._check_columns(task, fields.width, "/x", WrongDimension)
        if scale == "learned":
            return Preparation.found(fields, raws, task.radius)
        if scale == "none":
            return Preparation(fields)
        return Preparation(fields, Scaling.of_ranges(np.array(scale.low), np.array(scale.high), task.radius))

    def _create(self, spec: LearnerSpec, columns: int) -> OnlineLearner | ReservoirLearner:
        return ReservoirLearner.create(spec, columns) if self.definition.reservoir else create(spec, columns)

    def _check_columns(
        self, task: Task | None, columns: int, pointer: str, kind: type[InvalidInput] = InvalidInput
    ) -> None:
        scale = self.definition.scale
        if isinstance(scale, Ranges) and len(scale.low) != columns:
            if pointer == "/x":
                raise invalid(pointer, f"has {columns} inputs; this session's `scale` has {len(scale.low)}", kind)
            raise invalid("/scale/low", f"has {len(scale.low)} numbers; there are {columns} inputs")
        if task is not None and task.dims is not None and columns != task.dims:
            raise invalid(pointer, f"{columns} inputs; this learner takes {task.dims}", kind)


def _learnable(learner: OnlineLearner, X: F64, truths: F64, rows: Rows) -> NDArray[np.bool_]:
    """Which of n rounds the learner accepts, one after the other. Raises NumericalError if it refuses the last."""
    kept = np.ones(len(X), dtype=bool)
    for i, (x, y) in enumerate(zip(X, truths.tolist(), strict=True)):
        lags, weight = None if rows.lags is None else rows.lags[i], 1.0 if rows.weights is None else rows.weights[i]
        try:
            learner.update(x, y, lags=lags, weight=weight)
        except NumericalError:
            if i == len(X) - 1:
                raise
            kept[i] = False
    return kept
