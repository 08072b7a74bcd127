"""The weights of a learner's parts over time, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from okl_core.contract.state import part_of, prefixed
from okl_core.errors import StateFormatError
from okl_core.monitoring.thinned import Thinned
from okl_core.types import F64, Standing, Stored

MOST_PARTS: Final = 16
"""The number of parts, first come, whose weights are kept; the weights of the others are summed in the last column."""
OTHERS: Final = "others"

_WIDTH, _LEVELS = 8, 16
_ROUNDS, _FIRST = 0, 1


class Standings:
    """The weights of a learner's parts at no more than 128 points, finer near the end."""

    __slots__ = ("_points", "names")

    def __init__(self) -> None:
        self.names: list[str] = []
        self._points = Thinned(1, MOST_PARTS + 1, width=_WIDTH, levels=_LEVELS)

    def add(self, rounds: int, standing: Standing, times: int = 1) -> None:
        """Add the standing at the end of this many rounds, `times` in a row."""
        row = np.zeros(_FIRST + MOST_PARTS + 1)
        row[_ROUNDS] = rounds
        for name, weight in zip(standing.names, standing.weights.tolist(), strict=True):
            row[_FIRST + self._column(name)] += weight
        self._points.run(np.tile(row, (times, 1)))

    def _column(self, name: str) -> int:
        if name in self.names:
            return self.names.index(name)
        if len(self.names) == MOST_PARTS:
            return MOST_PARTS
        self.names.append(name)
        return len(self.names) - 1

    @property
    def rounds(self) -> Sequence[int]:
        """The rounds learned by the end of each point."""
        return np.cumsum(self._points.rows[:, _ROUNDS]).astype(int).tolist()

    def weights(self) -> dict[str, list[float]]:
        """The weights of each part by name, one for each point."""
        columns = self._points.rows[:, _FIRST:].T
        weights = {name: columns[i].tolist() for i, name in enumerate(self.names)}
        return weights | ({OTHERS: columns[-1].tolist()} if columns[-1].any() else {})

    @property
    def nbytes(self) -> int:
        return self._points.nbytes

    def pack(self) -> dict[str, F64]:
        names = np.frombuffer("\n".join(self.names).encode(), dtype=np.uint8).astype(np.float64)
        return {"names": names} | prefixed("points", self._points.pack())

    @classmethod
    def unpack(cls, arrays: Mapping[str, Stored]) -> Standings:
        """Raises StateFormatError."""
        standings = cls()
        try:
            text = arrays["names"].astype(np.uint8).tobytes().decode()
        except (KeyError, ValueError) as error:
            raise StateFormatError(f"the names of a learner's parts cannot be read: {error}") from error
        standings.names = text.split("\n") if text else []
        standings._points = Thinned.unpack(part_of(arrays, "points"))
        return standings
