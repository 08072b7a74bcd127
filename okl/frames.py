"""What comes back of many rows: in the kind of frame in which they came, or arrays of numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, final

from okl.values import frame_of


@final
@dataclass(frozen=True, slots=True)
class Form:
    """Of a frame of pandas, polars or what else narwhals reads: its library, and its index where it has one."""

    library: Any = None
    index: Any = None

    @classmethod
    def of(cls, X: Any) -> Self:
        """That of a frame or a series; of anything else the one of arrays."""
        found = frame_of(X)
        return cls() if found is None else cls(found.implementation, _index_of(found))

    def frame(self, columns: Mapping[str, Sequence[Any]]) -> Any:
        """Columns of equal length, as many rows as came; None is what is missing. Arrays by name without a library."""
        if self.library is None:
            return {name: array_of(values) for name, values in columns.items()}
        import narwhals as nw

        told = {name: _of_one_type(values) for name, values in columns.items()}
        made = nw.from_dict(told, backend=self.library).to_native()
        return self._indexed(made)

    def series(self, name: str, values: Sequence[Any]) -> Any:
        """One column; an array without a library."""
        if self.library is None:
            return array_of(values)
        import narwhals as nw

        made = nw.from_dict({name: _of_one_type(values)}, backend=self.library)[name].to_native()
        return self._indexed(made)

    def _indexed(self, made: Any) -> Any:
        if self.index is not None:
            made.index = self.index
        return made


NO_FRAME: Final = Form()


def array_of(values: Sequence[Any]) -> Any:
    """An array of numpy, of floats with NaN where numbers are missing. Entries of different lengths stay objects."""
    import numpy as np

    known = [value for value in values if value is not None]
    if 0 < len(known) < len(values) and all(type(value) in (int, float) for value in known):
        return np.array(values, dtype=np.float64)
    try:
        return np.array(values)
    except ValueError:
        made = np.empty(len(values), dtype=object)
        made[:] = values
        return made


def _of_one_type(values: Sequence[Any]) -> list[Any]:
    """Whole numbers beside others as floats, since a column of polars or Arrow has one type."""
    if {type(value) for value in values if value is not None} != {int, float}:
        return list(values)
    return [None if value is None else float(value) for value in values]


def _index_of(found: Any) -> Any:
    import narwhals as nw

    return nw.maybe_get_index(found)
