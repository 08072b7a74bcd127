r"""Sums over consecutive rounds in a bounded number of rows, finer near the end.

Rows are of levels: one of level k holds 2^k units, and each level at most `width` rows. When one is too many, the two oldest
of the level become one of the next. A unit is one chunk, until all `levels` are full; then it doubles: the rows of the
finest level are merged in pairs, and each level is the one below it. So n chunks are kept in width log2(n / width) rows at
most, and a row is at most as long as the rows after it together, over width / 2 - 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np
from numpy.typing import NDArray

from okl_core.errors import ShapeError, StateFormatError
from okl_core.types import F64, Stored

FEWEST = 8
"""Rows that are allocated at first."""
WIDEST, MOST_LEVELS = 4096, 32
MOST_CHUNKS = 2**53
"""In all rows; counts are exact as float64 up to there."""


@final
class Thinned:
    """Sums over consecutive rounds, in a bounded number of rows that are finer near the end.

    Parameters
    ----------
    sums, latest : int
        Columns of a row: first those that add up when rows merge, then those of which the later row's value stays.
    width, levels : int
        Rows of a level (even, 2 to 4,096), and levels (1 to 32).

    Notes
    -----
    `add` takes O(1) numpy calls, amortised; memory is at most width levels + 1 rows, for any number of chunks.
    All is exact where the sums are: the same chunks give the same rows, bit for bit.

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
        # Rows of each level, the finest first.
        self._counts = [0] * levels
        # Chunks in a unit; chunks that wait to be one, and their row.
        self._unit, self._filled = 1, 0
        self._pending: F64 = np.zeros(sums + latest)

    def __len__(self) -> int:
        """Rows."""
        return self._size

    @property
    def rows(self) -> F64:
        """The rows, shape (n, sums + latest), oldest first: a view until the next `add`.

        The last unit - 1 chunks may be missing: they wait, as `rest`. A unit is one chunk up to width (2^levels - 1) chunks.
        """
        return self._rows[: self._size]

    @property
    def rest(self) -> F64:
        """The row of the chunks that wait, shape (1, sums + latest), or (0, sums + latest) if none does."""
        return self._pending[None][: int(self._filled > 0)]

    @property
    def chunks(self) -> NDArray[np.int64]:
        """Chunks in each row, shape (n,): powers of two that do not increase from old to new."""
        return np.repeat(self._unit << np.arange(self._levels)[::-1], self._counts[::-1])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
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
        """Append chunks, shape (n, sums + latest): as `add` of each, to the bit. Raises ShapeError."""
        if rows.ndim != 2 or rows.shape[1] != len(self._pending):
            raise ShapeError(f"rows of shape {rows.shape}; these have {len(self._pending)} columns")
        held = sum(count << level for level, count in enumerate(self._counts))
        if self._unit > 1 or held + len(rows) > self._width * ((1 << self._levels) - 1):
            for row in rows:
                self.add(row)
            return
        older, levels, joining = self.rows, list[F64](), rows
        for level, count in enumerate(self._counts):
            own = np.concatenate((older[len(older) - count :], joining))
            older = older[: len(older) - count]
            merges = max(0, len(own) - self._width + 1) // 2
            levels.append(own[2 * merges :])
            self._counts[level] = len(levels[-1])
            joining = self._merged(own[: 2 * merges])
        found = np.concatenate(levels[::-1])
        self._size = len(found)
        self._rows = self._with_room(found)

    def copy(self) -> Thinned:
        """One that shares nothing with this."""
        return Thinned.unpack(self.pack())

    def pack(self) -> dict[str, F64]:
        """All of it as named arrays."""
        sizes = (self._sums, self._latest, self._width, self._levels, self._unit, self._filled)
        return {
            "rows": self.rows.copy(),
            "counts": np.array(self._counts, dtype=np.float64),
            "pending": self._pending.copy(),
            "sizes": np.array(sizes, dtype=np.float64),
        }

    @classmethod
    def unpack(cls, arrays: Mapping[str, Stored]) -> Thinned:
        """What `pack` gave. Raises StateFormatError for arrays of anything else."""
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
            raise StateFormatError(f"no thinned rows: {error}") from error
        return thinned

    def _with_room(self, rows: F64, more: int = 0) -> F64:
        """The rows in an array that has room for more."""
        room = FEWEST
        while room < len(rows) + more:
            room *= 2
        grown = np.zeros((min(room, self._width * self._levels), rows.shape[1]))
        grown[: len(rows)] = rows
        return grown

    def _merged(self, rows: F64) -> F64:
        """Each pair of rows as one."""
        merged = rows[1::2].copy()
        merged[:, : self._sums] += rows[::2, : self._sums]
        return merged

    def _collected(self, row: F64, chunks: int) -> F64:
        """The unit in the making, with one more row."""
        if self._filled:
            self._pending[: self._sums] += row[: self._sums]
            self._pending[self._sums :] = row[self._sums :]
        else:
            self._pending[:] = row
        self._filled += chunks
        return self._pending

    def _settle(self) -> None:
        """Merge the two oldest rows of each level that has too many."""
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
        """Double the unit; all levels are full."""
        finest = self._rows[self._size - self._width : self._size]
        merged = self._merged(finest)
        self._size -= self._width // 2
        self._rows[self._size - self._width // 2 : self._size] = merged
        self._counts = [*self._counts[1:], 0]
        self._counts[0] += self._width // 2
        self._unit *= 2
        self._settle()
