"""Checks of the inputs that clients send, made before anything else happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import islice

import numpy as np
from pydantic_core import to_json

from okl.errors import InvalidInput, NotFinite, WrongDimension, WrongFeatures, WrongType
from okl.values import json_pointer
from okl_core.records.fields import Field, Fields
from okl_core.records.record import (
    NUMBERS,
    NotANumberError,
    Raw,
    Record,
    RecordError,
    Value,
    as_record,
    flatten,
    is_complete,
    matrix_of,
)
from okl_core.records.survey import MOST_FIELDS
from okl_core.records.texts import time_in
from okl_core.types import F64

from ..pointers import invalid
from .definition import Definition, Input

NAMES_TOLD = 10
"""The most fields, labels or categories that an error names; it always names the last one."""

NAMES_COMPARED = 20
"""The most names of an input that are compared with that of a missing field."""

_TYPES: dict[str, type | tuple[type, ...]] = {"number": float, "boolean": bool, "text": str, "category": str}


def shown(value: object) -> str:
    """A value in an error: a text in quotes, others as in JSON."""
    return repr(value) if isinstance(value, str) else to_json(value).decode()


def listed(names: Sequence[object]) -> str:
    """The names as a comma-separated list; beyond NAMES_TOLD those in the middle are left out."""
    texts = [str(name) for name in names]
    return ", ".join(texts if len(texts) <= NAMES_TOLD else [*texts[: NAMES_TOLD - 1], "...", texts[-1]])


def pointer(*path: str | int) -> str:
    """The JSON pointer (RFC 6901) to a place in x."""
    return "/x" + json_pointer(path)


def read(x: Input, definition: Definition, fields: Fields | None) -> Raw:
    """The input as a row or a record. `fields`: those of the session's inputs, once known. Raises InvalidInput."""
    try:
        raw = flatten(x)
    except RecordError as error:
        kind = NotFinite if isinstance(error, NotANumberError) else InvalidInput
        raise invalid(pointer(*error.path), str(error), kind) from error
    if definition.dim is not None and (isinstance(raw, dict) or len(raw) != definition.dim):
        raise _not_numbers(x, definition.dim)
    if definition.is_strict and definition.hashed is None:
        _check_strict(raw, fields)
    return raw


def _not_numbers(x: Input, dim: int) -> InvalidInput:
    """The error of an input that is no list of `dim` numbers."""
    takes = f"this session takes a list of {dim} numbers"
    if isinstance(x, Mapping):
        return invalid("/x", f"is an object; {takes}", WrongDimension)
    if len(x) != dim:
        return invalid("/x", f"has {len(x)} values; {takes}", WrongDimension)
    wrong = next(i for i, value in enumerate(x) if type(value) not in NUMBERS)
    return invalid(pointer(wrong), f"must be a number; {takes}", WrongType)


def read_rows(xs: Sequence[Input] | F64, definition: Definition, fields: Fields) -> F64 | None:
    """Inputs that are valid rows of numbers, shape (n, d); None if any input needs `read`."""
    X = matrix_of(xs)
    if X is None or definition.dim not in (None, X.shape[1]):
        return None
    is_free = not definition.is_strict or definition.hashed is not None
    return X if is_free or (fields.is_row and X.shape[1] == len(fields.fields)) else None


def _check_strict(raw: Raw, fields: Fields | None) -> None:
    """Raises InvalidInput for an input without exactly these fields, or a first one with more than numbers and booleans."""
    if isinstance(raw, dict):
        if fields is not None:
            is_list, takes_list = "0" in raw, bool(fields.fields) and fields.fields[0].name == "0"
            if takes_list and not is_list:
                detail = f"this session takes a list of {len(fields.fields)} numbers"
                raise invalid("/x", detail, WrongFeatures)
            if is_list and "0" not in fields.names:
                raise _not_an_object(fields)
            _check_fields(raw, fields)
            return
        if not raw:
            raise invalid("/x", "has no field; the first input decides which there are", WrongFeatures)
        if len(raw) > MOST_FIELDS:
            # Their names would be hashed, which leaves nothing to compare the next input with.
            detail = f"has more than {MOST_FIELDS} fields, which need a `schema` or `hashed`, or no `strict`"
            raise invalid("/x", detail, WrongFeatures)
        for name, value in raw.items():
            if value is None or isinstance(value, str):
                what = "a null" if value is None else "a string"
                raise invalid(
                    pointer(name), f"{what} needs a field of the session's `schema`, or no `strict`", WrongFeatures
                )
        return
    if not is_complete(raw):
        where = pointer(int(np.isnan(raw).argmax()))
        raise invalid(where, "must be a number; a session without `strict` takes nulls", WrongType)
    if fields is None or (fields.is_row and len(raw) == len(fields.fields)):
        return
    if any(one.name != str(i) for i, one in enumerate(fields.fields)):
        raise _not_an_object(fields)
    if len(raw) != len(fields.fields):
        detail = f"has {len(raw)} numbers; this session takes {len(fields.fields)}"
        raise invalid("/x", detail, WrongDimension)
    _check_fields(as_record(raw), fields)


def _not_an_object(fields: Fields) -> InvalidInput:
    names = listed([one.name for one in fields.fields])
    return invalid("/x", f"this session takes an object with the fields {names}", WrongFeatures)


def _check_fields(record: Record, fields: Fields) -> None:
    for one in fields.fields:
        if one.name not in record:
            raise _missing(one.name, record, fields)
        _check_value(one, record[one.name])
    if len(record) > len(fields.fields):
        known = fields.names
        extra = next(name for name in record if name not in known)
        detail = "is not a field of this session; a session without `strict` takes new fields"
        raise invalid(pointer(extra), detail, WrongFeatures)


def _missing(name: str, record: Record, fields: Fields) -> InvalidInput:
    """The error of a missing field, or of the misspelt one in its place."""
    known = fields.names
    # An input may have tens of thousands of names, each of which takes microseconds to compare.
    strange = islice((other for other in record if other not in known), NAMES_COMPARED)
    near = get_close_matches(name, list(strange), n=1)
    if near:
        detail = f"is not a field of this session; did you mean {name!r}?"
        return invalid(pointer(near[0]), detail, WrongFeatures)
    return invalid(pointer(name), "is missing; a session without `strict` takes records without it", WrongFeatures)


def _check_value(one: Field, value: Value) -> None:
    where = pointer(one.name)
    if value is None:
        raise invalid(where, "is null; a session without `strict` takes nulls", WrongType)
    if one.kind == "category" and one.categories and value not in one.categories:
        raise invalid(where, f"is {shown(value)}; the categories are {listed(one.categories)}", WrongFeatures)
    if one.kind == "time":
        if not isinstance(value, str) or time_in(value) is None:
            raise invalid(where, f"is {shown(value)}; this field is a time, such as 2026-11-22T15:00:00Z", WrongType)
    elif not isinstance(value, _TYPES[one.kind]):
        raise invalid(where, f"is {shown(value)}; this field is a {one.kind}", WrongType)
