"""How inputs are prepared, as named arrays and JSON: what a snapshot and a pickled estimator keep of it."""

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
    """Those of the scale, shape (d,) each; none where the columns stay as they are."""
    scaling = preparation.scaling
    return {} if scaling is None else {"scaling.low": scaling.low, "scaling.span": scaling.span}


def told_of(preparation: Preparation) -> Json:
    """All that is no array."""
    scaling = preparation.scaling
    how = None if scaling is None else [scaling.bends, scaling.radius]
    return {"fields": fields_told(preparation.fields), "scaling": how, "extension": preparation.extension.encode()}


def preparation_of(told: Json, arrays: Mapping[str, Stored]) -> Preparation:
    """What `told_of` and `arrays_of` gave. Raises KeyError, ValueError, TypeError, StateFormatError."""
    scaling = None
    if told["scaling"] is not None:
        bends, radius = told["scaling"]
        low, span = (np.asarray(arrays[f"scaling.{end}"], dtype=np.float64) for end in ("low", "span"))
        scaling = Scaling(low, span, bends, radius)
    return Preparation(fields_of(told["fields"]), scaling, Extension.decode(told["extension"]))


def fields_told(fields: Fields) -> Json:
    # asdict copies in depth, which took a quarter of the time of a snapshot.
    own = [{name: getattr(one, name) for name in _NAMES} for one in fields.fields]
    return {"fields": own, "hashed": fields.hashed, "spare": fields.spare, "is_wide": fields.is_wide}


def fields_of(told: Json) -> Fields:
    """What `fields_told` gave. Raises KeyError, ValueError, TypeError."""
    fields = tuple(Field(**one | {"categories": tuple(one["categories"])}) for one in told["fields"])
    return Fields(fields, told["hashed"], told["spare"], told["is_wide"])
