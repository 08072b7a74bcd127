"""The rounds that a session collects before it scales its inputs and makes its learner."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64


@dataclass(slots=True)
class Warmup:
    """`length` rounds are kept: input, lags and truth of each, as one row. `rows` is None before the first."""

    length: int
    lags: int
    rows: GrowingArray | None = field(default=None)

    def __len__(self) -> int:
        return 0 if self.rows is None else len(self.rows)

    @property
    def nbytes(self) -> int:
        return 0 if self.rows is None else self.rows.nbytes

    def ends_within(self, rounds: int) -> bool:
        """Is its last round among the next ones? That one learns from all before it."""
        return len(self) + rounds >= self.length

    def add(self, x: F64, lags: F64 | None, y: float) -> None:
        row = _row(x, lags, y)
        if self.rows is None:
            self.rows = GrowingArray(len(row))
        self.rows.append(row)

    def with_last(self, x: F64, lags: F64 | None, y: float) -> tuple[F64, F64, F64]:
        """Inputs (n, d), lags (n, k) and truths (n,) of all its rounds, the last one included; nothing changes."""
        row = _row(x, lags, y)
        rows = row[np.newaxis] if self.rows is None else np.vstack([self.rows.view, row])
        return rows[:, : len(x)], rows[:, len(x) : -1], rows[:, -1]

    def copy(self) -> Warmup:
        return Warmup(self.length, self.lags, None if self.rows is None else GrowingArray.unpack(self.rows.pack()))


def _row(x: F64, lags: F64 | None, y: float) -> F64:
    return np.concatenate((x, () if lags is None else lags, (y,)))
