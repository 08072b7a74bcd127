"""Inputs of all shapes, drawn."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from okl_core.records.record import Raw, RecordError, flatten

text = st.text(max_size=8)
scalars = (
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(allow_nan=False, allow_infinity=False) | text
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3))
inputs = st.dictionaries(text, values, min_size=1, max_size=5) | st.lists(values, min_size=1, max_size=5)


def flattened(x: Any) -> Raw | None:
    try:
        return flatten(x)
    except RecordError:
        return None


raws = inputs.map(flattened).filter(lambda raw: raw is not None)
