"""What a client sends: strict, finite, bounded."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Strict,
    StringConstraints,
    Tag,
    WithJsonSchema,
)
from pydantic.functional_serializers import field_serializer
from pydantic.functional_validators import field_validator, model_validator

from okl_core import LearnerSpec
from okl_core.contract.frozen import Rule
from okl_core.records.fields import FIELD_KINDS, FieldKind
from okl_core.types import MAX_CLASSES
from service.api.problems import FIRST_TRY

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Id = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=128, pattern=r"^[\x21-\x7e]+$")]
Number = Annotated[float, Strict(), AllowInfNan(False)]
Text = Annotated[str, Strict(), StringConstraints(max_length=256)]
FieldName = Annotated[Text, Field(min_length=1)]
Boolean = Annotated[bool, Strict()]


def _tag(value: Any) -> str:
    """Which form of a union a JSON value takes; the tags never show in an error's pointer."""
    if isinstance(value, bool):
        return "<boolean>"
    if isinstance(value, str):
        return "<text>"
    if isinstance(value, dict):
        return "<object>"
    if isinstance(value, list):
        return "<list>"
    return "<number>"


_AnyScalar = Annotated[
    Annotated[Boolean, Tag("<boolean>")] | Annotated[Text, Tag("<text>")] | Annotated[Number, Tag("<number>")],
    Discriminator(
        _tag,
        custom_error_type="scalar",
        custom_error_message="Input should be a number, a string or a boolean",
    ),
]
# Most are numbers. To ask Python for the tag of each takes three times as long as to try that first.
Scalar = Annotated[
    Annotated[Number, Tag(FIRST_TRY)] | Annotated[_AnyScalar, Tag("<scalar>")],
    Field(union_mode="left_to_right"),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "string", "maxLength": 256}, {"type": "number"}]}),
]
Vector = Annotated[list[Number], Field(min_length=1, fail_fast=True)]


def _any(value: Any) -> str:
    return "<list>" if isinstance(value, list) else "<object>" if isinstance(value, dict) else "<other>"


# What is in it is looked at once it is flattened (okl_core.records): to ask pydantic about each value takes longer. Most are
# lists of numbers, and are tried first.
_Loose = Annotated[
    Annotated[list[Any], Field(min_length=1), Tag("<list>")]
    | Annotated[dict[str, Any], Field(min_length=1), Tag("<object>")],
    Discriminator(
        _any,
        custom_error_type="input",
        custom_error_message="Input should be a list or an object",
    ),
]
Input = Annotated[
    Annotated[Vector, Tag(FIRST_TRY)] | Annotated[_Loose, Tag("<loose>")],
    Field(union_mode="left_to_right"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "minItems": 1, "items": {}},
                {"type": "object", "minProperties": 1, "additionalProperties": {}},
            ]
        }
    ),
]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DeclaredField(_Wire):
    """What a field of the inputs is."""

    type: FieldKind
    # Lax, since what was looked at by Python is no JSON any more, and a list of Python is no tuple.
    categories: Annotated[tuple[Text, ...], Strict(False)] | None = Field(
        default=None, fail_fast=True, description="The values of a category; without them the frequent ones are found."
    )

    @model_validator(mode="after")
    def _categories_belong_to_a_category(self) -> DeclaredField:
        if self.categories is not None and self.type != "category":
            raise ValueError("`categories` go with type category")
        if self.categories is not None and not 0 < len(set(self.categories)) == len(self.categories):
            raise ValueError("`categories` must be there, and differ from each other")
        return self


def _declared(value: Any) -> Any:
    """A type alone is short for a field of it."""
    return {"type": value} if isinstance(value, str) else value


Declaration = Annotated[
    DeclaredField,
    BeforeValidator(_declared),
    WithJsonSchema({"anyOf": [{"enum": list(FIELD_KINDS)}, {"$ref": "#/components/schemas/DeclaredField"}]}),
]


class NoScale(_Wire):
    """Inputs as they come."""

    kind: Literal["none"] = "none"


class RangesScale(_Wire):
    """Each column from [low, high] to [0, 1]; values outside go outside."""

    kind: Literal["ranges"]
    low: Vector
    high: Vector

    @model_validator(mode="after")
    def _ordered(self) -> RangesScale:
        if len(self.low) != len(self.high) or any(h <= lo for lo, h in zip(self.low, self.high, strict=False)):
            raise ValueError("`low` and `high` have one number per input each, every low below its high")
        if any(math.isinf(h - lo) for lo, h in zip(self.low, self.high, strict=True)):
            raise ValueError("the difference of each `high` and `low` must be finite")
        return self


class LearnedScale(_Wire):
    """Found from the first rounds, again and again while the warm-up lasts."""

    kind: Literal["learned"] = "learned"


def _scale_tag(value: Any) -> str:
    return f"<{value.get('kind') if isinstance(value, dict) else getattr(value, 'kind', None)}>"


Scale = Annotated[
    Annotated[NoScale, Tag("<none>")]
    | Annotated[RangesScale, Tag("<ranges>")]
    | Annotated[LearnedScale, Tag("<learned>")],
    Discriminator(
        _scale_tag,
        custom_error_type="scale",
        custom_error_message='Input should be an object whose `kind` is "learned", "ranges" or "none"',
    ),
]


class SessionCreate(_Wire):
    """A new session."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "clicks", "labels": ["no", "yes"]},
                {
                    "name": "prices",
                    "learner": {"kind": "pros-n-kons", "config": {"kernel": {"kind": "gaussian", "sigma": "median"}}},
                    "y_range": [0, 5000],
                },
            ]
        },
    )

    name: Name = Field(
        description="Letters, digits, dot, underscore and dash; 64 at most, the first a letter or digit."
    )
    learner: LearnerSpec | None = Field(default=None, description="Without it the service chooses.")
    dim: int | None = Field(default=None, ge=1, description="Inputs are lists of so many numbers or nulls.")
    fields: dict[FieldName, Declaration] | None = Field(
        default=None,
        alias="schema",
        min_length=1,
        fail_fast=True,
        description="What fields of the inputs are, by path; others are found from the first rounds.",
    )
    hashed: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="For inputs of very many names, each with few of them: all share so many columns.",
    )
    strict: Boolean = Field(
        default=False,
        description="Refuse inputs with other fields than the schema or the first input has, and nulls.",
    )
    labels: tuple[Scalar, ...] | None = Field(
        default=None,
        fail_fast=True,
        json_schema_extra={"minItems": 2, "maxItems": MAX_CLASSES},
        description="The session's own labels: two, first the negative one, then the positive one; or those of all classes.",
    )
    y_range: tuple[Number, Number] | None = Field(default=None, description="[low, high] of a real truth.")
    scale: Scale = LearnedScale()
    warmup_rounds: int = Field(
        default=500,
        ge=2,
        le=10_000,
        description='Rounds from which fields, scale and the spec\'s words, such as `sigma: "median"`, are found.',
    )
    interval: float | None = Field(
        default=None,
        ge=0.5,
        le=0.99,
        description="Share of the truths that the interval of a prediction, or its set of labels, is to hold.",
    )
    snapshot_every: int | None = Field(
        default=None, ge=1, description="Rounds between full snapshots; without it the journal's size decides."
    )
    expires_s: float | None = Field(
        default=None, gt=0.0, le=10 * 366 * 86_400.0, description="Seconds that a prediction waits for its truth."
    )
    reservoir: Boolean = Field(
        default=False,
        description="Keep the state before a round drawn uniformly from all, so that it can be frozen.",
    )

    @field_validator("labels")
    @classmethod
    def _different_and_whole_ones_integers(cls, labels: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        """A label given as 1 is answered as 1, not as 1.0."""
        if labels is None:
            return None
        # Not a constraint of the field: that would be told beside an error of one of its values.
        if not 2 <= len(labels) <= MAX_CLASSES:
            raise ValueError(f"`labels` are 2 to {MAX_CLASSES} values")
        # 1 and true are different values, although Python says that they are equal.
        if len({(isinstance(v, bool), v) for v in labels}) < len(labels):
            raise ValueError("`labels` are different values")
        return tuple(int(v) if isinstance(v, float) and v.is_integer() and abs(v) < 2**53 else v for v in labels)

    @field_serializer("labels")
    def _labels_as_they_are(self, labels: tuple[Any, ...] | None) -> Any:
        return labels

    @model_validator(mode="after")
    def _consistent(self) -> SessionCreate:
        if self.labels is not None and self.y_range is not None:
            raise ValueError("`labels` and `y_range` exclude each other")
        if self.y_range is not None and not self.y_range[0] < self.y_range[1]:
            raise ValueError("`y_range` is [low, high] with low below high")
        if self.y_range is not None and math.isinf(self.y_range[1] - self.y_range[0]):
            raise ValueError("the difference of the two ends of `y_range` must be finite")
        if (self.fields is not None) + (self.dim is not None) + (self.hashed is not None) > 1:
            raise ValueError("`schema`, `dim` and `hashed` exclude each other")
        if self.strict:
            for name, one in (self.fields or {}).items():
                if one.type == "category" and one.categories is None:
                    raise ValueError(f"`schema` with `strict` names the categories of {name!r}")
        return self


class FreezeBody(_Wire):
    """Make a session that predicts as this one, and learns nothing."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "clicks-2026-11", "rule": "last"}]})

    name: Name = Field(description="Name of the new session.")
    rule: Rule = Field(
        default="last",
        description="The present state, or that before a round drawn uniformly from all, which needs `reservoir`.",
    )


class PredictBody(_Wire):
    """Ask for a prediction. The session is in the path."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"x": [0.1, 0.7, 0.3]}]})

    x: Input = Field(description="A list of numbers, or an object of named values; nulls and nesting are fine.")
    id: Id | None = Field(default=None, description="The client's own id of this prediction; made up if left out.")
    wait: Boolean = Field(
        default=True, description="false: pure inference, nothing is stored and no truth is expected."
    )

    @model_validator(mode="after")
    def _waits_under_an_id(self) -> PredictBody:
        if self.id is not None and not self.wait:
            raise ValueError("`id` names a prediction that waits; leave it out with `wait: false`")
        return self


class PredictRequest(PredictBody):
    """Ask for a prediction."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"session": "clicks", "x": [0.1, 0.7, 0.3]}]})

    session: Name


class UpdateBody(_Wire):
    """Report a truth: of a waiting prediction (`id`), or of an input that was not predicted (`x`, optionally with an `id`
    that makes the update idempotent). The session is in the path."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": "q83Jx0vE1kXcTfZb", "y": "yes"}]})

    y: Scalar = Field(description="The truth: a label of the session, or a number.")
    id: Id | None = None
    x: Input | None = None
    weight: Number = Field(
        default=1.0, ge=1e-6, le=1e6, description="How often the loss of the round counts; not every learner takes it."
    )

    @model_validator(mode="after")
    def _names_a_round(self) -> UpdateBody:
        if self.id is None and self.x is None:
            raise ValueError("give the `id` of a waiting prediction, or the input `x`")
        return self


class UpdateRequest(UpdateBody):
    """Report a truth."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"session": "clicks", "id": "q83Jx0vE1kXcTfZb", "y": "yes"}]}
    )

    session: Name


class StepBody(_Wire):
    """The truth of one round and the input of the next: `update` as in `POST /update`, `predict` as in `POST /predict`.
    The session is in the path."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"update": {"id": "visit-1", "y": "no"}, "predict": {"x": [0.1, 0.6, 0.3]}}]}
    )

    update: UpdateBody
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

    session: Name


class RoundsBody(_Wire):
    """Many rounds in order: each is predicted, then learned."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"x": [[0.1, 0.7, 0.3], [0.2, 0.6, 0.1]], "y": ["yes", "no"]}]}
    )
    in_slices: ClassVar[tuple[str, ...]] = ("x", "y")
    """Read in slices, so that it may be large."""

    x: list[Input] = Field(min_length=1, fail_fast=True)
    y: list[Scalar] = Field(min_length=1, fail_fast=True)
    id: Id | None = Field(default=None, description="Makes the whole request idempotent.")

    @model_validator(mode="after")
    def check(self) -> RoundsBody:
        if len(self.x) != len(self.y):
            raise ValueError(f"`x` has {len(self.x)} rows, `y` has {len(self.y)}")
        return self
