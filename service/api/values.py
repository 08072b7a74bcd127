"""The values of a request: strict, finite, bounded."""

from __future__ import annotations

from typing import Annotated, Any, NoReturn

from pydantic import (
    AfterValidator,
    AllowInfNan,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Strict,
    StringConstraints,
    Tag,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from ..keys.caller import named
from . import patterns
from .problems import FIRST_TRY

Name = Annotated[str, StringConstraints(pattern=patterns.NAME), AfterValidator(named)]
"""The name of a session in a request. Validation also checks that the request's key may access the session."""
KnownName = Annotated[str, StringConstraints(pattern=patterns.KNOWN_NAME), AfterValidator(named)]
"""The name of an existing session, which may be a challenger."""
MOST_NAME = 129
OwnName = Annotated[str, StringConstraints(pattern=patterns.NAME)]
"""The name of something that belongs to a session."""
NamePrefix = Annotated[str, StringConstraints(pattern=patterns.PREFIX)]
Id = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=128, pattern=patterns.ID)]
Number = Annotated[float, Strict(), AllowInfNan(False)]
Text = Annotated[str, Strict(), StringConstraints(max_length=256)]
FieldName = Annotated[Text, Field(min_length=1)]
Boolean = Annotated[bool, Strict()]


def _tag(value: Any) -> str:
    """The tag of the union member for a JSON value. Tags never appear in an error's pointer."""
    if isinstance(value, bool):
        return "<boolean>"
    if isinstance(value, str):
        return "<text>"
    if isinstance(value, dict):
        return "<object>"
    if isinstance(value, list):
        return "<list>"
    return "<null>" if value is None else "<number>"


def _refuse_null(value: object) -> NoReturn:
    raise PydanticCustomError("scalar", "must be a number, a string or a boolean, not null")


_AnyScalar = Annotated[
    Annotated[Boolean, Tag("<boolean>")]
    | Annotated[Text, Tag("<text>")]
    | Annotated[Number, Tag("<number>")]
    | Annotated[bool, PlainValidator(_refuse_null), Tag("<null>")],
    Discriminator(
        _tag,
        custom_error_type="scalar",
        custom_error_message="must be a number, a string or a boolean",
    ),
]
# Most scalars are numbers. Trying a number first takes a third of the time of asking Python for each tag.
Scalar = Annotated[
    Annotated[Number, Tag(FIRST_TRY)] | Annotated[_AnyScalar, Tag("<scalar>")],
    Field(union_mode="left_to_right"),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "string", "maxLength": 256}, {"type": "number"}]}),
]
Vector = Annotated[list[Number], Field(min_length=1, fail_fast=True)]


def _any(value: Any) -> str:
    return "<list>" if isinstance(value, list) else "<object>" if isinstance(value, dict) else "<other>"


# The elements are validated after flattening (okl_core.records), which is faster than pydantic. Lists of numbers are tried
# first, since most inputs are.
_Loose = Annotated[
    Annotated[list[Any], Field(min_length=1), Tag("<list>")] | Annotated[dict[str, Any], Tag("<object>")],
    Discriminator(
        _any,
        custom_error_type="input",
        custom_error_message="must be a list or an object",
    ),
]
Input = Annotated[
    Annotated[Vector, Tag(FIRST_TRY)] | Annotated[_Loose, Tag("<loose>")],
    Field(union_mode="left_to_right"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "minItems": 1, "items": {}},
                {"type": "object", "additionalProperties": {}},
            ]
        }
    ),
]


class Wire(BaseModel):
    """Base of request models. A model's validator is built when a request first needs it, not at the start."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)
