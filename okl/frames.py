"""Results for many rows, returned in the caller's data-frame library, or as NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, final

from okl.values import frame_of


@final
@dataclass(frozen=True, slots=True)
class Form:
    """Library and index of the caller's data frame, from which results are built; both None for other inputs."""

    library: Any = None
    index: Any = None

    @classmethod
    def of(cls, X: Any) -> Self:
        """The form of a data frame or series; NO_FRAME's for anything else."""
        frame = frame_of(X)
        return cls() if frame is None else cls(frame.implementation, _index_of(frame))

    def frame(self, columns: Mapping[str, Sequence[Any]]) -> Any:
        """A data frame of columns as long as the caller's, None for missing values; without a library a dict of arrays."""
        if self.library is None:
            return {name: array_of(values) for name, values in columns.items()}
        import narwhals as nw

        typed = {name: of_one_type(values) for name, values in columns.items()}
        return self._indexed(nw.from_dict(typed, backend=self.library).to_native())

    def series(self, name: str, values: Sequence[Any]) -> Any:
        """One column; without a library an array."""
        if self.library is None:
            return array_of(values)
        import narwhals as nw

        return self._indexed(nw.from_dict({name: of_one_type(values)}, backend=self.library)[name].to_native())

    def _indexed(self, result: Any) -> Any:
        if self.index is not None:
            result.index = self.index
        return result


NO_FRAME: Final = Form()


def array_of(values: Sequence[Any]) -> Any:
    """A NumPy array; missing numbers become NaN, and values of mixed types or lengths make an object array."""
    import numpy as np

    kinds = {type(value) for value in values if value is not None}
    if None in values and kinds and kinds <= {int, float}:
        return np.array(values, dtype=np.float64)
    try:
        return np.array(values, dtype=None if len(kinds) < 2 or kinds <= {int, float} else object)
    except ValueError:
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array


def of_one_type(values: Sequence[Any]) -> list[Any]:
    """Values, or lists of them, of one type, as a column needs: numbers become floats if any is one, and labels of mixed
    types become text."""
    kinds = _kinds(values)
    if len(kinds) < 2:
        return list(values)
    return _converted(float if kinds == {int, float} else str, values)


def _kinds(values: Sequence[Any]) -> set[type]:
    kinds = set(map(type, values)) - {type(None)}
    nested = kinds & {list, tuple}
    if not nested:
        return kinds
    return (kinds - nested).union(*(_kinds(value) for value in values if type(value) in nested))


def _converted(kind: type, values: Sequence[Any]) -> list[Any]:
    return [
        _converted(kind, value) if isinstance(value, list | tuple) else None if value is None else kind(value)
        for value in values
    ]


def _index_of(frame: Any) -> Any:
    import narwhals as nw

    return nw.maybe_get_index(frame)
