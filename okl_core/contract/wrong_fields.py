"""Messages for invalid values; an unknown field, kind or word is reported together with the known ones."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel

from okl_core.errors import did_you_mean, quoted

_ENDS = {"greater_than_equal": "ge", "less_than_equal": "le"}
_WORD = re.compile(r"'((?:[^'\\]|\\.)*)'")


def message_of(model: type[BaseModel], item: Mapping[str, Any]) -> str:
    """The message for one of the errors that pydantic found in a value of this model."""
    match item["type"]:
        case "extra_forbidden":
            return unknown_field(model, item["loc"])
        case "union_tag_invalid":
            tag = item["ctx"]["tag"]
            return f"there is no {quoted(tag)}{did_you_mean(tag, _words(item['ctx']['expected_tags']))}"
        case "literal_error" if isinstance(item["input"], str):
            word = item["input"]
            return f"there is no {quoted(word)}{did_you_mean(word, _words(item['ctx']['expected']))}"
        case "union_tag_not_found":
            return 'Input should say its `kind`: {"kind": ...}'
        case "model_attributes_type":
            return f'Input should be an object, {{"kind": ...}}, not {json_name(item["input"])}'
        case "model_type" | "dict_type":
            return f"Input should be an object, not {json_name(item['input'])}"
        case "greater_than_equal" | "less_than_equal" as end if "e" in (limit := repr(item["ctx"][_ENDS[end]])):
            # pydantic would write 1e-50 with all its zeros.
            return f"Input should be {end.replace('_equal', '_or_equal_to').replace('_', ' ')} {limit}"
    return item["msg"].removeprefix("Value error, ")


def unknown_field(model: type[BaseModel], location: Sequence[int | str]) -> str:
    """The message for an unknown field at this location in a value of this model."""
    models = [model]
    for part in location[:-1]:
        inner = [m for one in models for name, m in _parts(one) if name == part]
        # A part that is not a field is an index, or the tag of a union member.
        models = inner or [one for one in models if _kind(one) == str(part).strip("<>")] or models
    known = dict.fromkeys(field.alias or name for one in models for name, field in one.model_fields.items())
    return f"is unknown{did_you_mean(str(location[-1]), known)}"


def json_name(value: object) -> str:
    """The type of a value for error messages: the JSON name if there is one, else the Python type."""
    names = {type(None): "null", str: "a string", bool: "a boolean", list: "a list", dict: "an object"}
    return names.get(type(value)) or (
        "a number" if isinstance(value, int | float) else f"a value of type {type(value).__name__}"
    )


def _words(listed: str) -> list[str]:
    return _WORD.findall(listed)


def _parts(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        for inner in _models(field.annotation):
            yield field.alias or name, inner


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that a value of this type may be; for an abstract model, also its subclasses."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
        if inspect.isabstract(annotation):
            for one in annotation.__subclasses__():
                yield from _models(one)
    for one in get_args(annotation):
        yield from _models(one)


def _kind(model: type[BaseModel]) -> object:
    field = model.model_fields.get("kind")
    return None if field is None else next(iter(get_args(field.annotation)), None)
