"""Request bodies that create or manage sessions, templates and challengers."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Strict, Tag, WithJsonSchema
from pydantic.functional_serializers import field_serializer
from pydantic.functional_validators import field_validator, model_validator

from okl.answers import label_key
from okl_core import LearnerSpec
from okl_core.contract.frozen import FreezeRule
from okl_core.errors import did_you_mean, quoted
from okl_core.records.fields import FIELD_KINDS, FieldKind
from okl_core.records.warmup import ROUNDS
from okl_core.types import MAX_CLASSES

from ..session.truths import as_label
from .values import Boolean, FieldName, Name, NamePrefix, Number, OwnName, Scalar, Text, Vector, Wire


def _known_kind(value: Any) -> Any:
    """Refuse the name of no type with the nearest one."""
    if isinstance(value, str) and value not in FIELD_KINDS:
        raise ValueError(f"there is no type {quoted(value)}{did_you_mean(value, FIELD_KINDS)}")
    return value


class DeclaredField(Wire):
    """The declaration of one field of the inputs."""

    type: Annotated[FieldKind, BeforeValidator(_known_kind)]
    # Lax: the validators before have turned the JSON into Python objects, and strict mode takes no list for a tuple.
    categories: Annotated[tuple[Text, ...], Strict(False)] | None = Field(
        default=None,
        fail_fast=True,
        description="The values of a category; if omitted, the frequent values are found from the data.",
    )

    @model_validator(mode="after")
    def _categories_belong_to_a_category(self) -> DeclaredField:
        if self.categories is not None and self.type != "category":
            raise ValueError("`categories` require the type category")
        if self.categories is not None and not 0 < len(set(self.categories)) == len(self.categories):
            raise ValueError("`categories` must be at least one value, each listed once")
        return self


def _declared(value: Any) -> Any:
    """A bare type is shorthand for a field of that type."""
    return {"type": value} if isinstance(value, str) else value


Declaration = Annotated[
    DeclaredField,
    BeforeValidator(_declared),
    WithJsonSchema({"anyOf": [{"enum": list(FIELD_KINDS)}, {"$ref": "#/components/schemas/DeclaredField"}]}),
]


class NoScale(Wire):
    """Inputs are not scaled."""

    kind: Literal["none"] = "none"


class RangesScale(Wire):
    """Each column is mapped from [low, high] to [0, 1]; values outside the range are not clipped."""

    kind: Literal["ranges"]
    low: Vector
    high: Vector

    @model_validator(mode="after")
    def _ordered(self) -> RangesScale:
        if len(self.low) != len(self.high) or any(h <= lo for lo, h in zip(self.low, self.high, strict=False)):
            raise ValueError("`low` and `high` must have one number per input each, every low below its high")
        if any(math.isinf(h - lo) for lo, h in zip(self.low, self.high, strict=True)):
            raise ValueError("the difference of each `high` and `low` must be finite")
        return self


class LearnedScale(Wire):
    """Ranges are found from the first rounds, and updated throughout the warm-up."""

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
        custom_error_message='must be an object whose `kind` is "learned", "ranges" or "none"',
    ),
]


class AlarmBody(Wire):
    """When to raise an alarm."""

    rate: float | None = Field(
        default=0.01,
        ge=1e-6,
        le=0.5,
        description="The probability of ever raising a false alarm while the error does not rise; null: no test.",
    )
    error_above: float | None = Field(
        default=None,
        ge=0.0,
        allow_inf_nan=False,
        description="Also raise an alarm when the windowed mistake rate, or RMSE, exceeds this.",
    )


class SessionSettings(Wire):
    """All settings of a session except its name."""

    learner: LearnerSpec | None = Field(default=None, description="If omitted, the service chooses.")
    dim: int | None = Field(default=None, ge=1, description="Inputs are lists of this many numbers or nulls.")
    fields: dict[FieldName, Declaration] | None = Field(
        default=None,
        alias="schema",
        min_length=1,
        fail_fast=True,
        description="Types of the input fields, by path; other fields are found from the first rounds.",
    )
    hashed: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Hash all fields into this many columns: for sparse inputs that draw on very many names.",
    )
    strict: Boolean = Field(
        default=False,
        description="Refuse nulls, and inputs whose fields differ from those of the schema or the first input.",
    )
    labels: tuple[Scalar, ...] | None = Field(
        default=None,
        fail_fast=True,
        json_schema_extra={"minItems": 2, "maxItems": MAX_CLASSES},
        description="The session's labels: two, the negative one first, then the positive one; or those of all classes.",
    )
    y_range: tuple[Number, Number] | None = Field(default=None, description="[low, high] of a real-valued truth.")
    scale: Scale = LearnedScale()
    warmup_rounds: int = Field(
        default=ROUNDS,
        ge=2,
        le=10_000,
        description='Rounds from which fields, scale and data-dependent parameters, such as `sigma: "median"`, are found.',
    )
    interval: float | None = Field(
        default=None,
        ge=0.5,
        le=0.99,
        description="Share of the truths that a prediction's interval, or its set of labels, should contain.",
    )
    snapshot_every: int | None = Field(
        default=None, ge=1, description="Rounds between full snapshots; if omitted, the journal's size decides."
    )
    expires_s: float | None = Field(
        default=None, gt=0.0, le=10 * 366 * 86_400.0, description="Seconds that a prediction waits for its truth."
    )
    reservoir: Boolean = Field(
        default=False,
        description="Keep the state before a round that is drawn uniformly from all rounds, so that it can be frozen.",
    )
    alarm: AlarmBody = AlarmBody()

    @field_validator("labels")
    @classmethod
    def _different_and_whole_ones_integers(cls, labels: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        """Check that labels are distinct; turn whole floats into integers, so that a label 1 is answered as 1, not 1.0."""
        if labels is None:
            return None
        # Not a constraint of the field: that would be reported in addition to an error in one of its values.
        if not 2 <= len(labels) <= MAX_CLASSES:
            raise ValueError(f"must be 2 to {MAX_CLASSES} values")
        # In JSON 1 and true are different values; in Python they are equal.
        if len(set(map(label_key, labels))) < len(labels):
            raise ValueError("must be different values")
        return tuple(map(as_label, labels))

    @field_validator("y_range")
    @classmethod
    def _low_below_high(cls, y_range: tuple[float, float] | None) -> tuple[float, float] | None:
        if y_range is not None and not y_range[0] < y_range[1]:
            raise ValueError("must be [low, high] with low below high")
        if y_range is not None and math.isinf(y_range[1] - y_range[0]):
            raise ValueError("must have two ends whose difference is finite")
        return y_range

    @field_serializer("labels")
    def _labels_as_they_are(self, labels: tuple[Any, ...] | None) -> Any:
        return labels

    @model_validator(mode="after")
    def _consistent(self) -> SessionSettings:
        if self.labels is not None and self.y_range is not None:
            raise ValueError("`labels` and `y_range` exclude each other")
        if (self.fields is not None) + (self.dim is not None) + (self.hashed is not None) > 1:
            raise ValueError("`schema`, `dim` and `hashed` exclude each other")
        if self.strict:
            for name, one in (self.fields or {}).items():
                if one.type == "category" and one.categories is None:
                    raise ValueError(f"`schema` with `strict` must list the categories of {name!r}")
        return self


class SessionCreate(SessionSettings):
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
        description="At most 64 letters, digits, dots, underscores and dashes, of which the first is a letter or digit."
    )


class TemplateBody(Wire):
    """A template of sessions."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"prefix": "clicks.", "session": {"labels": ["no", "yes"]}, "most": 1000, "idle_s": 2_592_000.0}
            ]
        }
    )

    prefix: NamePrefix = Field(description="Prefix of its sessions' names, which must be longer than the prefix.")
    session: SessionSettings = Field(
        default=SessionSettings(), description="Their settings: the body of `POST /sessions` without `name`."
    )
    most: int = Field(
        default=1_000, ge=1, le=1_000_000, description="Create at most this many sessions with the prefix."
    )
    idle_s: float | None = Field(
        default=None,
        ge=60.0,
        le=10 * 366 * 86_400.0,
        allow_inf_nan=False,
        description="Delete a session of the template after this many seconds without a round or prediction; null: never.",
    )


class CloneBody(Wire):
    """Create a session with the same state."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "clicks-2"}]})

    name: Name = Field(description="Name of the new session.")


class RenameBody(Wire):
    """Give the session another name."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "clicks-eu"}]})

    name: Name = Field(description="The new name.")


class CheckpointBody(Wire):
    """Keep the session's state as it is now."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "before-the-sale"}]})

    name: OwnName | None = Field(default=None, description="If omitted, `t` and the round, such as `t1200`.")


class RollbackBody(Wire):
    """Return to a checkpoint."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"checkpoint": "before-the-sale"}]})

    checkpoint: OwnName = Field(description="Name of the checkpoint.")


class ChallengerBody(Wire):
    """Attach a challenger."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "pomdr", "learner": {"kind": "pomdr"}, "from": "journal"}]}
    )

    name: OwnName = Field(description="Name of the challenger, unique within the session.")
    learner: LearnerSpec | None = Field(default=None, description="If omitted, the service chooses.")
    begin: Literal["now", "journal"] = Field(
        default="now",
        alias="from",
        description="Begin with the next round, or with the oldest round that is still in the session's journal.",
    )


class FreezeBody(Wire):
    """Create a session that predicts as this one does, and learns nothing."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "clicks-2026-11", "rule": "last"}]})

    name: Name = Field(description="Name of the new session.")
    rule: FreezeRule = Field(
        default="last",
        description="The state now, or the one before a round drawn uniformly from all rounds, which needs `reservoir`.",
    )
