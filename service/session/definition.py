"""The definition of a session: everything that the client decides when it creates one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from okl_core import LearnerSpec
from okl_core.records.record import Raw
from okl_core.records.survey import MOST_FIELDS, Declared, Survey
from okl_core.records.warmup import ROUNDS
from okl_core.types import F64

Scalar = bool | str | int | float
Input = Sequence[Any] | Mapping[str, Any] | F64
"""An input as a client sends it: a list or an object of named values, both possibly nested, or an array of numbers with NaN
for missing ones."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """The interval of each column, which is mapped to the learner's."""

    low: tuple[float, ...]
    high: tuple[float, ...]


class AlarmRules(NamedTuple):
    """When to raise alarms.

    `rate`: the chance of ever raising a false alarm while the error does not rise, None for no test; `error_above`: the
    windowed error (mistake rate, or RMSE) above which an alarm is raised, once until the error falls below it again.
    """

    rate: float | None = 0.01
    error_above: float | None = None


USUAL_ALARMS = AlarmRules()

Scale = Literal["none", "learned"] | Ranges


@dataclass(frozen=True, slots=True)
class Definition:
    """A session as requested.

    Without a `learner` the service chooses one to suit the truths. `dim` and `schema` are None where the inputs decide;
    `hashed`: the number of columns that all names of the inputs share. `interval`: the share of truths that intervals, or
    sets of labels, should hold. `template` names the template that created the session on first use.
    """

    name: str
    learner: LearnerSpec | None = None
    dim: int | None = None
    schema: tuple[tuple[str, Declared], ...] | None = None
    hashed: int | None = None
    is_strict: bool = False
    labels: tuple[Scalar, ...] | None = None
    y_range: tuple[float, float] | None = None
    scale: Scale = "learned"
    warmup_rounds: int = ROUNDS
    interval: float | None = None
    snapshot_every: int | None = None
    expires_s: float | None = None
    reservoir: bool = False
    alarm: AlarmRules = USUAL_ALARMS
    template: str | None = None

    @property
    def kind(self) -> str:
        """The kind of the requested learner; "auto" where the service chooses it."""
        return "auto" if self.learner is None else self.learner.kind

    def columns_of(self, raw: Raw) -> int:
        """About how many columns the learner will have if an input like this is the first."""
        if isinstance(raw, dict) and not self.is_strict:
            # With more fields than MOST_FIELDS, their names are hashed.
            return self.hashed or min(len(raw), MOST_FIELDS + len(self.schema or ()))
        return self.hashed or len(raw)

    @property
    def survey(self) -> Survey:
        """The survey that finds the fields of the inputs."""
        return Survey(self.schema or (), self.is_strict, self.hashed)
