"""The members of one-vs-rest: the learner of two labels that each class has one of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Self, final

import numpy as np
from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from okl_core.contract.learner import Learner, from_kind, or_a_kind, parse_spec, taken_dim
from okl_core.contract.state import pack
from okl_core.errors import ConfigError, DivergedError, NumericalError, StateFormatError
from okl_core.types import F64, MAX_CLASSES, Forecast, LearnerConfig, LearnerState, Parameters

AnyLearner = Learner[Any, Any, Any]


LEAST_PROBABILITY = 1e-300
"""Members' smaller probabilities count as this one: logarithms stay finite, and if all are 0 the classes are equal."""


class ClassLearner(Parameters):
    """A learner of two labels that gives probabilities. A kind alone is short for it."""

    kind: str = Field(description="Wire name of the learner.")
    config: dict[str, Any] = Field(default_factory=dict, description="Its parameters.")

    _from_kind = model_validator(mode="before")(from_kind)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return or_a_kind(handler(schema), handler)

    @model_validator(mode="after")
    def _gives_probabilities(self) -> Self:
        try:
            learner, config = self.parsed
        except ConfigError as error:
            # As a ValueError it is told with its place in the config.
            raise ValueError(str(error)) from error
        if learner.target(config) != "binary":
            raise ValueError(f"{self.kind} with this config is no learner of two labels")
        if learner.loss(config).probability(0.0) is not None:
            return self
        # A forecast may have a probability of its own; what waits for inputs takes any.
        dim = self.dim or 1
        config = config.resolved(np.ones((1, dim)), np.ones(1))
        if learner.predict(config, learner.init(config, dim), np.zeros(dim)).probability is None:
            raise ValueError(
                f"{self.kind} with this config gives no probabilities; logistic loss does, where it has one"
            )
        return self

    @cached_property
    def parsed(self) -> tuple[AnyLearner, LearnerConfig]:
        _, learner, config = parse_spec({"kind": self.kind, "config": self.config})
        return learner, config

    @property
    def dim(self) -> int | None:
        return taken_dim(*self.parsed)

    def waiting(self) -> list[tuple[tuple[str, ...], str]]:
        return [(("config", *path), word) for path, word in self.parsed[1].waiting()]

    def resolved(self, X: F64, y: F64 | None = None) -> Self:
        # All members get the same parameters, so what depends on the truths depends on those of all of them.
        truths = None if y is None else np.where(y[:, None] == np.unique(y), 1.0, -1.0)
        return type(self)(kind=self.kind, config=self.parsed[1].resolved(X, truths).model_dump(mode="json"))


def _default_member() -> ClassLearner:
    # Made on demand: while this module is imported other kinds are not registered yet. One class among many is told from
    # the rest by larger weights than one of two: with aioli's own norm the bar of bench.multiclass would be crossed.
    return ClassLearner(kind="aioli", config={"comparator_norm": 8.0})


class OneVsRestConfig(LearnerConfig):
    """Parameters of one-vs-rest."""

    classes: int = Field(
        default=2,
        ge=2,
        le=MAX_CLASSES,
        description="K: truths are 0 to K - 1. A session may leave it out, and takes the number of its labels.",
    )
    member: ClassLearner = Field(default_factory=_default_member, description="The learner that each class has one of.")

    @cached_property
    def streams(self) -> list[str]:
        """The names of the members' coins."""
        return [f"class-{k}" for k in range(self.classes)]


@final
class Members(list[LearnerState]):
    """The state of each class's learner."""

    def pack(self) -> dict[str, F64]:
        return {f"{k}.{name}": array for k, member in enumerate(self) for name, array in pack(member).items()}

    @classmethod
    def unpack_classes(cls, config: OneVsRestConfig, arrays: Mapping[str, F64], t: int) -> Members:
        """Those after t rounds. Raises StateFormatError."""
        learner, own = config.member.parsed
        parts: dict[str, dict[str, F64]] = {str(k): {} for k in range(config.classes)}
        for name, array in arrays.items():
            k, _, part = name.partition(".")
            if k not in parts:
                raise StateFormatError(f"the state has an array {name!r} of a class that there is not")
            parts[k][part] = array
        members = cls(learner.unpack(own, part) for part in parts.values())
        for k, member in enumerate(members):
            if member.t != t:
                raise StateFormatError(f"class {k} has learned {member.t} rounds, the learner {t}")
        return members


@contextmanager
def named(k: int) -> Iterator[None]:
    """Errors of the arithmetic say which class's learner it is."""
    try:
        yield
    except NumericalError as error:
        raise type(error)(f"class {k} against the rest: {error}") from error


def composed(forecasts: Sequence[Forecast], t: int) -> Forecast:
    """The forecast of round t from the members'."""
    q = scaled(np.array([forecast.probability for forecast in forecasts], dtype=np.float64), t)
    return Forecast(float(q.max()), None, tuple(q.tolist()))


def scaled(P: F64, t: int) -> F64:
    """The members' probabilities from round t on, shape (..., K), so that they sum to one. Raises DivergedError."""
    P = np.maximum(P, LEAST_PROBABILITY)
    sums = P.sum(axis=-1, keepdims=True)
    if not np.isfinite(sums).all():
        raise DivergedError(f"round {t} or later in its block: a probability is not finite; raise the regularization")
    return P / sums
