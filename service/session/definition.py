"""What a client decides when it makes a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from okl_core import LearnerSpec
from okl_core.records.survey import Declared, Survey
from okl_core.records.warmup import ROUNDS
from okl_core.types import F64

Scalar = bool | str | int | float
Input = Sequence[Any] | Mapping[str, Any] | F64
"""An input as a client sends it: a list, or an object of named values; both may be nested. Or an array of numbers,
NaN where one is missing."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """The interval of each column that is mapped to the learner's."""

    low: tuple[float, ...]
    high: tuple[float, ...]


class AlarmRules(NamedTuple):
    """`rate`: the chance that there is ever a false alarm while the error does not rise, None for no test; `error_above`:
    a windowed error (mistake rate, or RMSE) that is an alarm of its own, once until it has fallen below."""

    rate: float | None = 0.01
    error_above: float | None = None


USUAL_ALARMS = AlarmRules()

Scale = Literal["none", "learned"] | Ranges


@dataclass(frozen=True, slots=True)
class Definition:
    """A session as it was asked for.

    Without a `learner` the service chooses one for what the truths are. `dim` and `schema` are None where the inputs
    decide; `hashed`: all names of the inputs share so many columns. `interval`: the share of truths that intervals, or sets
    of labels, are to hold. `template` names the template that made it on first use.
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
        """Of the learner, whoever chose it."""
        return "auto" if self.learner is None else self.learner.kind

    @property
    def survey(self) -> Survey:
        """How the fields of the inputs are found."""
        return Survey(self.schema or (), self.is_strict, self.hashed)
