r"""Sums over consecutive rounds in a bounded number of rows, with finer resolution near the end.

Rows are organised in levels: a row of level k holds 2^k units, and each level holds at most `width` rows. If a level
overflows, its two oldest rows are merged into one of the next level. A unit is one chunk until all `levels` are full; then
it doubles: the rows of the finest level are merged in pairs, and each level moves down by one. So n chunks take at most
width log2(n / width) rows, and a row is at most as long as all later rows together, divided by width / 2 - 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np
from numpy.typing import NDArray

from okl_core.errors import ShapeError, StateFormatError
from okl_core.types import F64, Stored

FEWEST = 8
"""Rows allocated at first."""
WIDEST, MOST_LEVELS = 4096, 32
MOST_CHUNKS = 2**53
"""Most chunks in all rows; up to this, counts are exact as float64."""


@final
class Thinned:
    """Sums over consecutive rounds, in a bounded number of rows with finer resolution near the end.

    Parameters
    ----------
    sums, latest : int
        Columns of a row: first those that add up when rows merge, then those that keep the later row's value.
    width, levels : int
        Rows per level (even, 2 to 4,096), and number of levels (1 to 32).

    Notes
    -----
    `add` takes O(1) NumPy calls, amortised; memory is at most width levels + 1 rows, for any number of chunks.
    Rows are exact if the sums are, and the same chunks give the same rows, bit for bit.

    Examples
    --------
    >>> thinned = Thinned(sums=1, latest=1, width=2, levels=8)
    >>> for t in range(1, 12):
    ...     thinned.add(np.array([1.0, t]))
    >>> thinned.chunks.tolist(), thinned.rows[:, 0].tolist(), thinned.rows[:, 1].tolist()
    ([4, 4, 2, 1], [4.0, 4.0, 2.0, 1.0], [4.0, 8.0, 10.0, 11.0])
    """

    __slots__ = ("_counts", "_filled", "_latest", "_levels", "_pending", "_rows", "_size", "_sums", "_unit", "_width")

    def __init__(self, sums: int, latest: int = 0, *, width: int = 32, levels: int = 16) -> None:
        if sums < 0 or latest < 0 or not sums + latest:
            raise ValueError(f"{sums} sums and {latest} latest values: a row needs one of them")
        if not 2 <= width <= WIDEST or width % 2 or not 1 <= levels <= MOST_LEVELS:
            raise ValueError(f"width {width} must be even, 2 to {WIDEST}, levels {levels} 1 to {MOST_LEVELS}")
        self._sums, self._latest, self._width, self._levels = sums, latest, width, levels
        self._rows: F64 = np.zeros((min(FEWEST, width * levels), sums + latest))
        self._size = 0
        # Number of rows in each level, finest first.
        self._counts = [0] * levels
        # Chunks per unit, chunks waiting to form a unit, and the row of the latter.
        self._unit, self._filled = 1, 0
        self._pending: F64 = np.zeros(sums + latest)

    def __len__(self) -> int:
        """The number of rows."""
        return self._size

    @property
    def rows(self) -> F64:
        """The rows, shape (n, sums + latest), oldest first: a view that is valid until the next `add`.

        Up to unit - 1 last chunks may be missing, since they wait in `rest`. A unit is one chunk for up to
        width (2^levels - 1) chunks.
        """
        return self._rows[: self._size]

    @property
    def rest(self) -> F64:
        """The row of the waiting chunks, shape (1, sums + latest), or (0, sums + latest) if there are none."""
        return self._pending[None][: int(self._filled > 0)]

    @property
    def chunks(self) -> NDArray[np.int64]:
        """Chunks in each row, shape (n,): powers of two, non-increasing from old to new."""
        return np.repeat(self._unit << np.arange(self._levels)[::-1], self._counts[::-1])

    @property
    def nbytes(self) -> int:
        """Size of the arrays, in bytes."""
        return self._rows.nbytes + self._pending.nbytes

    def add(self, row: F64) -> None:
        """Append one chunk. Raises ShapeError unless its shape is (sums + latest,)."""
        if row.shape != self._pending.shape:
            raise ShapeError(f"a row of shape {row.shape}; this one has {self._sums} sums and {self._latest} latest")
        if self._unit > 1:
            row = self._collected(row, 1)
            if self._filled < self._unit:
                return
            self._filled = 0
        if self._size == self._width * self._levels:
            self._coarsen()
            self._filled = 0
            self._collected(row, self._unit // 2)
            return
        if self._size == len(self._rows):
            self._rows = self._with_room(self._rows, 1)
        self._rows[self._size] = row
        self._size += 1
        self._counts[0] += 1
        self._settle()

    def run(self, rows: F64) -> None:
        """Append chunks, shape (n, sums + latest), bit for bit as by `add`. Raises ShapeError."""
        if rows.ndim != 2 or rows.shape[1] != len(self._pending):
            raise ShapeError(f"rows of shape {rows.shape}; these have {len(self._pending)} columns")
        held = sum(count << level for level, count in enumerate(self._counts))
        if self._unit > 1 or held + len(rows) > self._width * ((1 << self._levels) - 1):
            for row in rows:
                self.add(row)
            return
        older, levels, joining = self.rows, list[F64](), rows
        for level, count in enumerate(self._counts):
            current = np.concatenate((older[len(older) - count :], joining))
            older = older[: len(older) - count]
            merges = max(0, len(current) - self._width + 1) // 2
            levels.append(current[2 * merges :])
            self._counts[level] = len(levels[-1])
            joining = self._merged(current[: 2 * merges])
        merged = np.concatenate(levels[::-1])
        self._size = len(merged)
        self._rows = self._with_room(merged)

    def copy(self) -> Thinned:
        """An independent copy."""
        return Thinned.unpack(self.pack())

    def pack(self) -> dict[str, F64]:
        """The whole state as named arrays."""
        sizes = (self._sums, self._latest, self._width, self._levels, self._unit, self._filled)
        return {
            "rows": self.rows.copy(),
            "counts": np.array(self._counts, dtype=np.float64),
            "pending": self._pending.copy(),
            "sizes": np.array(sizes, dtype=np.float64),
        }

    @classmethod
    def unpack(cls, arrays: Mapping[str, Stored]) -> Thinned:
        """The inverse of `pack`. Raises StateFormatError for any other arrays."""
        try:
            if set(arrays) != {"rows", "counts", "pending", "sizes"}:
                raise ValueError(f"arrays {sorted(arrays)}")
            sizes, counts = arrays["sizes"], arrays["counts"]
            if not all(np.isfinite(array).all() for array in arrays.values()):
                raise ValueError("numbers that are not finite")
            sums, latest, width, levels, unit, filled = (int(size) for size in sizes)
            if counts.shape != (levels,):
                raise ValueError(f"{counts.shape} counts of {levels} levels")
            thinned = cls(sums, latest, width=width, levels=levels)
            thinned._counts = [int(count) for count in counts]
            thinned._size, thinned._unit, thinned._filled = sum(thinned._counts), unit, filled
            rows, pending = arrays["rows"], arrays["pending"]
            shape = (thinned._size, sums + latest)
            if (
                not all(0 <= count <= width for count in thinned._counts)
                or rows.shape != shape
                or pending.shape != shape[1:]
            ):
                raise ValueError(f"rows of shape {rows.shape} for counts {thinned._counts}")
            if not 1 <= unit << levels <= MOST_CHUNKS or unit & (unit - 1) or not 0 <= filled < unit:
                raise ValueError(f"{filled} of {unit} chunks")
            thinned._rows = thinned._with_room(np.asarray(rows, dtype=np.float64))
            thinned._pending = np.array(pending, dtype=np.float64)
        except (ValueError, TypeError, OverflowError, IndexError, MemoryError) as error:
            raise StateFormatError(f"not thinned rows: {error}") from error
        return thinned

    def _with_room(self, rows: F64, more: int = 0) -> F64:
        """The rows in a larger array, with room for `more` rows."""
        room = FEWEST
        while room < len(rows) + more:
            room *= 2
        grown = np.zeros((min(room, self._width * self._levels), rows.shape[1]))
        grown[: len(rows)] = rows
        return grown

    def _merged(self, rows: F64) -> F64:
        """Merge consecutive pairs of rows."""
        merged = rows[1::2].copy()
        merged[:, : self._sums] += rows[::2, : self._sums]
        return merged

    def _collected(self, row: F64, chunks: int) -> F64:
        """Add a row to the pending unit, and return it."""
        if self._filled:
            self._pending[: self._sums] += row[: self._sums]
            self._pending[self._sums :] = row[self._sums :]
        else:
            self._pending[:] = row
        self._filled += chunks
        return self._pending

    def _settle(self) -> None:
        """Merge the two oldest rows of each level that overflows."""
        for level in range(self._levels):
            while self._counts[level] > self._width:
                oldest = self._size - sum(self._counts[: level + 1])
                rows, sums = self._rows, self._sums
                rows[oldest, :sums] += rows[oldest + 1, :sums]
                rows[oldest, sums:] = rows[oldest + 1, sums:]
                rows[oldest + 1 : self._size - 1] = rows[oldest + 2 : self._size]
                self._size -= 1
                self._counts[level] -= 2
                self._counts[level + 1] += 1
            if not level + 1 < self._levels or self._counts[level + 1] <= self._width:
                break

    def _coarsen(self) -> None:
        """Double the unit, once all levels are full."""
        finest = self._rows[self._size - self._width : self._size]
        merged = self._merged(finest)
        self._size -= self._width // 2
        self._rows[self._size - self._width // 2 : self._size] = merged
        self._counts = [*self._counts[1:], 0]
        self._counts[0] += self._width // 2
        self._unit *= 2
        self._settle()
