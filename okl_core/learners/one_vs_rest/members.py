"""The members of one-vs-rest: the learner of two labels that each class has one of."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

import numpy as np
from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from okl_core.contract.learner import from_kind, or_a_kind, parse_spec, taken_dim
from okl_core.contract.wrong_fields import WrongInside
from okl_core.errors import ConfigError
from okl_core.learners.one_vs_rest.apart import AnyLearner, Apart
from okl_core.learners.one_vs_rest.classes import Classes
from okl_core.learners.one_vs_rest.together import Together
from okl_core.pool.bank import member_of
from okl_core.types import F64, ClassCount, LearnerConfig, Parameters


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
            raise WrongInside(error) from error
        if learner.target(config) != "binary":
            raise ValueError(f"{self.kind} with this config is no learner of two labels")
        if not learner.gives_probabilities(config):
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

    classes: ClassCount = 2
    member: ClassLearner = Field(default_factory=_default_member, description="The learner that each class has one of.")

    @property
    def cautions(self) -> tuple[str, ...]:
        """Those of its member."""
        return self.member.parsed[1].cautions

    @cached_property
    def team(self) -> Classes[Any, Any]:
        """The members at work: on a dictionary, which looks at the inputs alone, all together."""
        learner, own = self.member.parsed
        shared = member_of(learner, own)
        if shared is None:
            return Apart(self.classes, learner, own)
        return Together(self.classes, learner.kind, shared)
