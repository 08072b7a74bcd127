"""Request bodies that play rounds."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.functional_validators import model_validator

from okl_core.contract.facade import LARGEST_WEIGHT, SMALLEST_WEIGHT

from ..pointers import WrongMember
from .values import Boolean, Id, Input, KnownName, Number, Scalar, Wire

Wait = Annotated[Boolean, Field(description="false: pure inference; nothing is stored and no truth is expected.")]
Weight = Annotated[
    Number,
    Field(
        ge=SMALLEST_WEIGHT, le=LARGEST_WEIGHT, description="Weight of the round's loss; not every learner supports it."
    ),
]


class PredictBody(Wire):
    """Ask for a prediction. The session is in the path."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"x": [0.1, 0.7, 0.3]}]})

    x: Input = Field(description="A list of numbers, or an object of named values; nulls and nesting are fine.")
    id: Id | None = Field(default=None, description="The client's id of this prediction; generated if omitted.")
    wait: Wait = True

    @model_validator(mode="after")
    def _waits_under_an_id(self) -> PredictBody:
        if self.id is not None and not self.wait:
            raise ValueError("`id` names a prediction that waits; leave it out with `wait: false`")
        return self


class PredictRequest(PredictBody):
    """Ask for a prediction."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"session": "clicks", "x": [0.1, 0.7, 0.3]}]})

    session: KnownName


class UpdateBody(Wire):
    """Report a truth: for a waiting prediction (`id`), or for an input that was not predicted (`x`, optionally with an `id`
    that makes the update idempotent). The session is in the path."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": "q83Jx0vE1kXcTfZb", "y": "yes"}]})

    y: Scalar = Field(description="The truth: a label of the session, or a number.")
    id: Id | None = None
    x: Input | None = None
    weight: Weight = 1.0


class UpdateRequest(UpdateBody):
    """Report a truth."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"session": "clicks", "id": "q83Jx0vE1kXcTfZb", "y": "yes"}]}
    )

    session: KnownName


NAMES_NO_ROUND = "give the `id` of a waiting prediction, or the input `x`"


def _named(body: UpdateBody) -> UpdateBody:
    if body.id is None and body.x is None:
        raise ValueError(NAMES_NO_ROUND)
    return body


NamedUpdate = Annotated[UpdateBody, AfterValidator(_named)]
"""An update that is not alone in its request, so that no header can have its id."""


class StepBody(Wire):
    """The truth of one round and the input of the next: `update` as in `POST /update`, `predict` as in `POST /predict`.
    The session is in the path."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"update": {"id": "visit-1", "y": "no"}, "predict": {"x": [0.1, 0.6, 0.3]}}]}
    )

    update: NamedUpdate
    predict: PredictBody

    @model_validator(mode="after")
    def _two_ids(self) -> StepBody:
        if self.predict.id is not None and self.predict.id == self.update.id:
            raise ValueError("`update` and `predict` are two rounds; give the prediction an id of its own")
        return self


class StepRequest(StepBody):
    """The truth of one round and the input of the next."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"session": "clicks", "update": {"id": "visit-1", "y": "no"}, "predict": {"x": [0.1, 0.6, 0.3]}}
            ]
        }
    )

    session: KnownName


class PredictManyBody(Wire):
    """Many inputs to predict at once. The session is in the path."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"x": [[0.1, 0.7, 0.3], [0.2, 0.6, 0.1]]}]})
    in_slices: ClassVar[tuple[str, ...]] = ("x", "ids")

    x: list[Input] = Field(min_length=1, max_length=1000, fail_fast=True)
    ids: list[Id] | None = Field(default=None, fail_fast=True, description="One per input; generated if omitted.")
    wait: Wait = True

    @model_validator(mode="after")
    def check(self) -> PredictManyBody:
        if self.ids is not None and not self.wait:
            raise ValueError("`ids` name predictions that wait; leave them out with `wait: false`")
        if self.ids is not None and len(self.ids) != len(self.x):
            raise WrongMember("ids", f"`x` has {len(self.x)} inputs, `ids` has {len(self.ids)}")
        if self.ids is not None and len(set(self.ids)) < len(self.ids):
            raise WrongMember("ids", "must be different")
        return self


class RoundsBody(Wire):
    """Many rounds in order: each is predicted, then learned."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"x": [[0.1, 0.7, 0.3], [0.2, 0.6, 0.1]], "y": ["yes", "no"]}]}
    )
    in_slices: ClassVar[tuple[str, ...]] = ("x", "y", "weight")
    """Read in slices, so that it may be large."""
    other_kinds: ClassVar[str] = "lines (application/x-ndjson) and Arrow"

    x: list[Input] = Field(min_length=1, fail_fast=True)
    y: list[Scalar] = Field(min_length=1, fail_fast=True)
    weight: list[Weight] | None = Field(default=None, fail_fast=True, description="One per round; 1 if omitted.")
    id: Id | None = Field(default=None, description="Makes the whole request idempotent.")

    @model_validator(mode="after")
    def check(self) -> RoundsBody:
        if len(self.x) != len(self.y):
            raise WrongMember("y", f"`x` has {len(self.x)} rows, `y` has {len(self.y)}")
        if self.weight is not None and len(self.weight) != len(self.x):
            raise WrongMember("weight", f"`x` has {len(self.x)} rows, `weight` has {len(self.weight)}")
        return self
