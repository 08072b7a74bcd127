"""Serialisation of a `Preparation` as named arrays and JSON, for snapshots and pickled estimators."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields as fields_in
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, NonNegativeInt

from okl_core.errors import StateFormatError
from okl_core.records.extension import Extension
from okl_core.records.fields import Field, FieldKind, Fields
from okl_core.records.preparation import Preparation
from okl_core.records.scaling import Former, Scaling, Stray, Trial
from okl_core.types import F64, Stored

Json = dict[str, Any]

_NAMES = tuple(one.name for one in fields_in(Field))


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class _KeptField(_Kept):
    name: str
    kind: FieldKind
    categories: tuple[str, ...]
    is_open: bool
    has_indicator: bool
    centre: float


class _KeptFields(_Kept):
    fields: tuple[_KeptField, ...]
    hashed: NonNegativeInt
    spare: NonNegativeInt
    is_wide: bool


def arrays_of(preparation: Preparation) -> dict[str, F64]:
    """The arrays of the scaling, shape (d,) each; none if the columns are not scaled."""
    scaling = preparation.scaling
    return {} if scaling is None else {"scaling.low": scaling.low, "scaling.span": scaling.span}


def json_of(preparation: Preparation) -> Json:
    """Everything except the arrays, as JSON."""
    scaling = None if preparation.scaling is None else _json_of_scaling(preparation.scaling)
    return {
        "fields": json_of_fields(preparation.fields),
        "scaling": scaling,
        "extension": preparation.extension.encode(),
    }


def _json_of_scaling(scaling: Scaling) -> list[Any]:
    doubts = [list(one.items()) for one in (scaling.trials, scaling.strays, scaling.formers)]
    return [scaling.bends, scaling.radius, *(doubts if any(doubts) else [])]


def preparation_of(json: Json, arrays: Mapping[str, Stored]) -> Preparation:
    """The inverse of `json_of` and `arrays_of`. Raises KeyError, ValueError, TypeError, StateFormatError."""
    fields, scaling = fields_of(json["fields"]), None
    if json["scaling"] is not None:
        bends, radius, *doubts = json["scaling"]
        tried, strayed, lost = doubts or ((), (), ())
        low, span = (np.asarray(arrays[f"scaling.{end}"], dtype=np.float64) for end in ("low", "span"))
        trials = {j: Trial(float(constant), tuple(map(float, distances))) for j, (constant, distances) in tried}
        strays = {j: Stray(int(times), float(last)) for j, (times, last) in strayed}
        formers = {j: Former(float(former), int(values), int(fitting)) for j, (former, values, fitting) in lost}
        if not low.shape == span.shape == (fields.width,):
            raise StateFormatError(f"{fields.width} columns have a scaling of shapes {low.shape} and {span.shape}")
        if not (np.isfinite(low).all() and np.isfinite(span).all()):
            raise StateFormatError("a scaling has numbers that are not finite")
        if unknown := [j for j in (*trials, *strays, *formers) if type(j) is not int or not 0 <= j < len(low)]:
            raise StateFormatError(f"there are {len(low)} columns, and a doubt about column {unknown[0]!r}")
        if radius is not None and not 0.0 < float(radius) < math.inf:
            raise StateFormatError(f"a scaling to the radius {radius}")
        scaling = Scaling(low, span, bool(bends), None if radius is None else float(radius), trials, strays, formers)
    extension = Extension.decode(json["extension"])
    if (
        sorted(extension.columns().values()) != list(range(len(extension.places)))
        or len(extension.places) > fields.spare
    ):
        raise StateFormatError(f"the extension's columns are not the first of {fields.spare} spare ones")
    return Preparation(fields, scaling, extension)


def json_of_fields(fields: Fields) -> Json:
    """The fields as JSON."""
    # `asdict` copies deeply, which took a quarter of the time of a snapshot.
    items = [{name: getattr(one, name) for name in _NAMES} for one in fields.fields]
    return {"fields": items, "hashed": fields.hashed, "spare": fields.spare, "is_wide": fields.is_wide}


def fields_of(json: Json) -> Fields:
    """The inverse of `json_of_fields`. Raises ValueError, StateFormatError."""
    kept = _KeptFields.model_validate(json)
    fields = Fields(tuple(Field(**dict(one)) for one in kept.fields), kept.hashed, kept.spare, kept.is_wide)
    if len(fields.names) < len(fields.fields):
        raise StateFormatError("two fields have the same name")
    if not fields.hashed and (fields.is_wide or any(one.kind == "text" for one in fields.fields)):
        raise StateFormatError("text has no columns")
    return fields
