"""Serialisation of a `Preparation` as named arrays and JSON, for snapshots and pickled estimators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields as fields_in
from typing import Any

import numpy as np

from okl_core.records.extension import Extension
from okl_core.records.fields import Field, Fields
from okl_core.records.preparation import Preparation
from okl_core.records.scaling import Scaling
from okl_core.types import F64, Stored

Json = dict[str, Any]

_NAMES = tuple(one.name for one in fields_in(Field))


def arrays_of(preparation: Preparation) -> dict[str, F64]:
    """The arrays of the scaling, shape (d,) each; none if the columns are not scaled."""
    scaling = preparation.scaling
    return {} if scaling is None else {"scaling.low": scaling.low, "scaling.span": scaling.span}


def told_of(preparation: Preparation) -> Json:
    """Everything except the arrays, as JSON."""
    scaling = preparation.scaling
    options = None if scaling is None else [scaling.bends, scaling.radius]
    return {"fields": fields_told(preparation.fields), "scaling": options, "extension": preparation.extension.encode()}


def preparation_of(told: Json, arrays: Mapping[str, Stored]) -> Preparation:
    """The inverse of `told_of` and `arrays_of`. Raises KeyError, ValueError, TypeError, StateFormatError."""
    scaling = None
    if told["scaling"] is not None:
        bends, radius = told["scaling"]
        low, span = (np.asarray(arrays[f"scaling.{end}"], dtype=np.float64) for end in ("low", "span"))
        scaling = Scaling(low, span, bends, radius)
    return Preparation(fields_of(told["fields"]), scaling, Extension.decode(told["extension"]))


def fields_told(fields: Fields) -> Json:
    """The fields as JSON."""
    # `asdict` copies deeply, which took a quarter of the time of a snapshot.
    items = [{name: getattr(one, name) for name in _NAMES} for one in fields.fields]
    return {"fields": items, "hashed": fields.hashed, "spare": fields.spare, "is_wide": fields.is_wide}


def fields_of(told: Json) -> Fields:
    """The inverse of `fields_told`. Raises KeyError, ValueError, TypeError."""
    fields = tuple(Field(**one | {"categories": tuple(one["categories"])}) for one in told["fields"])
    return Fields(fields, told["hashed"], told["spare"], told["is_wide"])
