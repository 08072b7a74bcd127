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
    """An array of numpy, of floats with NaN where numbers are missing. Entries of different types or lengths stay objects."""
    import numpy as np

    kinds = {type(value) for value in values if value is not None}
    if None in values and kinds and kinds <= {int, float}:
        return np.array(values, dtype=np.float64)
    try:
        return np.array(values, dtype=None if len(kinds) < 2 or kinds <= {int, float} else object)
    except ValueError:
        made = np.empty(len(values), dtype=object)
        made[:] = values
        return made


def _of_one_type(values: Sequence[Any]) -> list[Any]:
    """As a column has them: numbers as floats where some are, and text of labels of several types."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    if len(kinds) > 1:
        return [None if value is None else str(value) for value in values]
    return list(values)


def _index_of(found: Any) -> Any:
    import narwhals as nw

    return nw.maybe_get_index(found)
