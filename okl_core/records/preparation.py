"""Conversion of inputs to vectors, as learned from the stream: fields, their scaling, and keys that appeared later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from okl_core.records.extension import Extension
from okl_core.records.fields import Fields
from okl_core.records.record import Raw, Raws
from okl_core.records.scaling import Scaling
from okl_core.types import F64


@final
@dataclass(slots=True)
class Preparation:
    """The fields of a stream's inputs, their scaling (None if columns are not scaled), and the use of spare columns.

    The fields are found from all inputs so far (`Survey`) and then fixed. `see` learns from an input, and affects later
    ones: it assigns spare columns, and sets the spans of columns that were constant so far, or that prove wrong.
    """

    fields: Fields
    scaling: Scaling | None = None
    extension: Extension = field(default_factory=Extension)
    _encoded: tuple[Raw, F64] | None = field(default=None, init=False, compare=False, repr=False)
    """The input of the last `vector`, unscaled, until another is seen: mostly it is the next one seen."""

    @classmethod
    def found(cls, fields: Fields, raws: Sequence[Raw], radius: float | None) -> Preparation:
        """A preparation with these fields, scaled from the inputs, of which there must be at least one."""
        V = np.array([fields.encode(raw) for raw in raws])
        return cls(fields, Scaling.found(V, *_masks(fields), radius))

    @property
    def width(self) -> int:
        """The length d of a vector."""
        return self.fields.width

    @property
    def nbytes(self) -> int:
        return self.extension.nbytes + (0 if self.scaling is None else self.scaling.nbytes)

    def vector(self, raw: Raw) -> F64:
        """The vector of an input, shape (d,)."""
        v = self._unscaled(raw)
        if self.scaling is None:
            return v
        self._encoded = raw, v
        return self.scaling(v)

    def see(self, raw: Raw) -> None:
        """Learn from an input whose round is over."""
        encoded, self._encoded = self._encoded, None
        if self.scaling is not None and self.scaling.bends:
            v = encoded[1] if encoded is not None and encoded[0] is raw else self._unscaled(raw)
            self.scaling = self.scaling.seen(v)
        if self.fields.spare:
            self.extension.count(self.fields, raw)

    def learn_rows(self, raws: Raws) -> F64:
        """The vectors of inputs, shape (n, d); each input is encoded and then seen before the next."""
        V = self._rows_unscaled(raws)
        if self.scaling is None:
            return V
        X, self.scaling = self.scaling.rows(V)
        return X

    def learn_first(self, raws: Raws) -> F64:
        """As `learn_rows`, for the inputs that the scaling was found from."""
        V = self._rows_unscaled(raws)
        if self.scaling is None:
            return V
        X, self.scaling = self.scaling.first_rows(V)
        return X

    def copy(self) -> Preparation:
        return Preparation(self.fields, self.scaling, self.extension.copy())

    def maps_alike(self, other: Preparation | None) -> bool:
        """Whether both give the same vectors, as long as no further input is seen."""
        if other is None or self.fields != other.fields:
            return False
        return other.scaling is None if self.scaling is None else self.scaling.maps_alike(other.scaling)

    def _rows_unscaled(self, raws: Raws) -> F64:
        if isinstance(raws, np.ndarray) and self.fields.is_row and raws.shape[1] == self.width:
            return self.fields.filled(raws)
        V = np.empty((len(raws), self.width))
        for i, raw in enumerate(raws):
            V[i] = self._unscaled(raw)
            if self.fields.spare:
                self.extension.count(self.fields, raw)
        return V

    def _unscaled(self, raw: Raw) -> F64:
        v = self.fields.encode(raw)
        if self.fields.spare:
            self.extension.fill(self.fields, raw, v)
        return v


def _masks(fields: Fields) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Masks of the columns that hold measurements, and of those that hold sums of hashed values; shape (d,) each."""
    measured, hashed = np.zeros(fields.width, dtype=bool), np.zeros(fields.width, dtype=bool)
    start = 0
    for one in fields.fields:
        measured[start] = one.kind in ("number", "time")
        start += one.width
    hashed[start : start + fields.hashed] = True
    # What a spare column will hold is unknown, so it counts as a measurement.
    measured[start + fields.hashed :] = True
    return measured, hashed
