"""The fields of a session's inputs as its page shows them, and the input that the form for predictions starts with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from okl.values import Json
from okl_core.records.fields import category_of, number_of

from .formats import moment


@final
@dataclass(frozen=True, slots=True)
class InputForm:
    """`fields` has each name once; before the first inference, those that are declared, without columns. `example` is an
    input for the session; its values are those of the inputs that edit it."""

    fields: list[Json]
    example: Any

    @property
    def is_record(self) -> bool:
        """Whether inputs have names, so that each field gets an input of its own."""
        return bool(self.fields) and isinstance(self.example, Mapping)

    def given(self, field: Json) -> str:
        """The field's value in the example, read as the mapping reads it: an input for numbers cannot hold the text NA."""
        value = self.example.get(field["name"])
        if field["type"] == "number":
            number = number_of(value)
            return "" if number is None else str(number).removesuffix(".0")
        category = category_of(float(value) if type(value) is int else value)
        return "" if category is None else category


def input_form(document: Json) -> InputForm:
    """The form of a session's document. It starts with an input that the session has seen, if there is one."""
    session = document["session"]
    fields = _by_name(session.get("fields") or _declared(session))
    rounds = (document.get("rounds") or {}).get("rounds") or (document.get("waiting") or {}).get("predictions") or []
    seen = rounds[0]["x"] if rounds else None
    return InputForm(fields, _made_up(session, fields, document.get("now")) if seen is None else seen)


def _declared(session: Json) -> list[Json]:
    """The fields of the schema, as far as it tells."""
    schema: Mapping[str, Json] = (session.get("settings") or {}).get("schema") or {}
    return [{"name": name, "columns": [], **declared} for name, declared in schema.items()]


def _by_name(fields: list[Json]) -> list[Json]:
    """Each name once, with all of its columns and categories: one that was met late is an entry of its own."""
    found: dict[str, Json] = {}
    for one in fields:
        known = found.get(one["name"])
        found[one["name"]] = one if known is None else _joined(known, one)
    return list(found.values())


def _joined(known: Json, late: Json) -> Json:
    """A new field may have columns for a number and for words; the mapping reads both from text."""
    categories = [*(known.get("categories") or ()), *(late.get("categories") or ())]
    joined = known | {"columns": [*known["columns"], *late["columns"]], "categories": categories}
    return joined | ({} if known["type"] == late["type"] else {"type": "category"})


def _made_up(session: Json, fields: list[Json], now: float | None) -> Any:
    if fields and all(one["name"] == str(i) and one["type"] == "number" for i, one in enumerate(fields)):
        return [one.get("missing_as") or 0.0 for one in fields]  # inputs are lists of numbers
    if fields:
        return {one["name"]: _typical(one, now) for one in fields}
    return {"word": 1.0} if session.get("hashed") else [0.0] * min(session.get("dim") or 2, 64)


def _typical(field: Json, now: float | None) -> Any:
    match field["type"]:
        case "number":
            return field.get("missing_as") or 0.0
        case "boolean":
            return False
        case "category":
            return next(iter(field.get("categories") or ()), "")
        case "time":
            return moment(now) or "2026-01-01"
        case _:
            return "words"
