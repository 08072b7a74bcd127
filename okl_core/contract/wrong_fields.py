"""Messages for invalid values; an unknown field, kind or word is reported together with the known ones."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final, get_args

from pydantic import BaseModel, ValidationError

from okl_core.errors import ConfigError, did_you_mean, quoted

_WORD = re.compile(r"'((?:[^'\\]|\\.)*)'")

MAX_ERRORS_TOLD = 100
"""Errors in one value that are listed; of more only the count is given, since listing a million takes half a minute."""

_LIMITS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "a string",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
_LENGTHS = {"too_short": ("at least", "min_length"), "too_long": ("at most", "max_length")}
MISSING = "is missing"
"""The message for a required field that is not there."""


@final
class WrongInside(ValueError):
    """Raised by a validator for errors inside the value that it checks; `errors` has their paths in it and messages."""

    def __init__(self, error: ConfigError) -> None:
        super().__init__(str(error))
        self.errors = error.errors


def in_words(item: Mapping[str, Any]) -> str:
    """The message for one of pydantic's errors, to follow the field's name: "must be greater than 0"."""
    kind, context = item["type"], item.get("ctx", {})
    if kind in _LIMITS:
        words, end = _LIMITS[kind]
        return f"must be {words} {_limit(context[end])}"
    if kind in _LENGTHS:
        words, end = _LENGTHS[kind]
        return f"must have {words} {context[end]} item{'s' * (context[end] != 1)}"
    if kind in _TYPES:
        return f"must be {_TYPES[kind]}"
    match kind:
        case "missing":
            return MISSING
        case "extra_forbidden":
            return "is unknown"
        case "union_tag_not_found":
            return 'must say its `kind`: {"kind": ...}'
    message = item["msg"].removeprefix("Value error, ")
    for prefix in ("Input ", "String ", "List ", "Dictionary "):
        message = message.removeprefix(prefix)
    return message.replace("should", "must")


def _limit(value: object) -> str:
    return repr(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e16 else str(value)


def wrong_fields(
    model: type[BaseModel], value: object, error: ValidationError, prefix: Sequence[str]
) -> list[tuple[tuple[int | str, ...], str]]:
    """Path and message of each field of `value` that is wrong, after `prefix`; `error` is pydantic's for this model."""
    if error.error_count() > MAX_ERRORS_TOLD:
        return [((*prefix,), f"{error.error_count():,} places are wrong, too many to tell")]
    found: dict[tuple[int | str, ...], list[Mapping[str, Any]]] = {}
    inside: dict[tuple[int | str, ...], str] = {}
    for item in error.errors(include_url=False):
        path = place(value, item["loc"], may_lack_last=item["type"] == "missing")
        cause = item.get("ctx", {}).get("error")
        if isinstance(cause, WrongInside) and cause.errors:
            for inner, message in cause.errors:
                inside[place(value, (*path, *inner), may_lack_last=True)] = message
        else:
            found.setdefault(path, []).append(item)
    # A value that may be of several types has errors for each: those of the type that it was meant to be are inside it.
    outer = {path[:i] for path in (*found, *inside) for i in range(1, len(path))}
    told = {path: _message(model, items) for path, items in found.items() if path not in outer} | inside
    return [((*prefix, *path), message) for path, message in told.items()]


def place(document: object, location: Sequence[int | str], *, may_lack_last: bool) -> tuple[int | str, ...]:
    """A pydantic location without the tags of unions, which are not part of the document.

    With `may_lack_last` the last part is taken for a member that an object of the document lacks.
    """
    parts: list[int | str] = []
    for i, part in enumerate(location):
        if isinstance(document, dict) and (part in document or (may_lack_last and i == len(location) - 1)):
            document = document.get(part)
        elif isinstance(document, list) and isinstance(part, int):
            document = document[part]
        else:
            continue
        parts.append(part)
    return tuple(parts)


def _message(model: type[BaseModel], items: Sequence[Mapping[str, Any]]) -> str:
    """One message for the errors at one place: several are of the types that the value may be of."""
    given = items[0]["input"]
    if len(items) > 1:
        first, *others = dict.fromkeys(in_words(item) for item in items)
        words = first, *(other.removeprefix("must be ").removeprefix("must ") for other in others)
        return f"{' or '.join(words)}, not {_told(given)}"
    (item,) = items
    match item["type"]:
        case "extra_forbidden":
            return unknown_field(model, item["loc"])
        case "union_tag_invalid":
            tag = item["ctx"]["tag"]
            return f"there is no {quoted(tag)}{did_you_mean(tag, _words(item['ctx']['expected_tags']))}"
        case "literal_error" if isinstance(given, str):
            return f"there is no {quoted(given)}{did_you_mean(given, _words(item['ctx']['expected']))}"
        case "model_attributes_type":
            return f'{in_words(item)}, {{"kind": ...}}, not {_told(given)}'
        case kind if kind in _LIMITS or kind in _TYPES or kind == "literal_error":
            return f"{in_words(item)}, not {_told(given)}"
    return in_words(item)


def _told(value: object) -> str:
    """A value for error messages: a number or a word itself, else its type."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int):
        # Python writes no integer of more than 4,300 digits.
        return str(value) if abs(value) < 10**16 else "an integer of more than 16 digits"
    return str(value) if isinstance(value, float) else json_name(value)


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
    names = {
        type(None): "null",
        str: "a string",
        bool: "a boolean",
        list: "a list",
        dict: "an object",
        tuple: "a tuple",
    }
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
