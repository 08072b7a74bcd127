"""The settings of a new session as JSON: labels in any ordered form, and fields declared by types of Python or NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from okl.errors import WrongType
from okl.values import as_json, column, json_pointer

FIELD_OF_KIND: Final = {
    "f": "number",
    "i": "number",
    "u": "number",
    "m": "number",
    "b": "boolean",
    "M": "time",
    "U": "text",
}
"""The type of a field by the kind of its dtype; the client sends durations as numbers of seconds."""

FIELD_OF_NAME: Final = {"str": "text", "string": "text", "category": "category"}
"""The type of a field by the name of its dtype in pandas, where the kind tells only that it holds objects."""

ACCEPTED: Final = "number, boolean, category, time or text, or by float, int, bool, str or a dtype"


def settings_json(settings: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    """The settings as JSON; `session` holds those of a template. The errors point to places below `at`."""
    read = {"labels": _labels, "schema": _schema, "session": _session}
    return {name: read.get(name, as_json)(value, f"{at}/{name}") for name, value in settings.items()}


def _session(settings: Any, at: str) -> Any:
    return settings_json(settings, at) if isinstance(settings, Mapping) else as_json(settings, at)


def _labels(labels: Any, at: str) -> Any:
    return None if labels is None else column(labels, at)


def _schema(schema: Any, at: str) -> Any:
    if schema is None:
        return None
    if hasattr(schema, "iloc"):
        schema = schema.to_dict()  # pandas' `frame.dtypes`
    if not isinstance(schema, Mapping):
        raise WrongType.at(at, f"must be a dictionary from fields to their types, not {type(schema).__name__}")
    return {str(name): _field(declared, at + json_pointer([name])) for name, declared in schema.items()}


def _field(declared: Any, at: str) -> Any:
    """The declaration of a field, whose type may be a class, or a dtype of NumPy or pandas."""
    if declared is None or isinstance(declared, str):
        return declared
    if isinstance(declared, Mapping):
        return {name: (_field if name == "type" else as_json)(part, f"{at}/{name}") for name, part in declared.items()}
    dtype = declared
    if isinstance(declared, type):
        import numpy as np

        with suppress(TypeError):  # of abstract classes
            dtype = np.dtype(declared)
    field = FIELD_OF_KIND.get(getattr(dtype, "kind", "")) or FIELD_OF_NAME.get(getattr(dtype, "name", ""))
    if field is None and getattr(declared, "kind", "") == "O":
        raise WrongType.at(at, f"a column of {declared} may hold anything; name its type: text, category or another")
    if field is None:
        raise WrongType.at(at, f"{declared!r} is no type of a field, which is given by {ACCEPTED}")
    return field
