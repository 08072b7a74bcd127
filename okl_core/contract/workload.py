"""Limits on the size of a block, so that its arrays fit a fixed working memory, and the cost of long rounds."""

from __future__ import annotations

WORKING_BYTES = 2**24
"""Memory for a block's temporaries, beside the state.

Enough for full-length blocks up to about 4,000 numbers per round. Above that, longer blocks gain little, since a single
round already exceeds the caches.
"""

ARRAYS = 4
"""Arrays of the given width that a block holds at once."""


def rows_at_once(width: int, most: int) -> int:
    """Rounds in a block whose arrays have `width` numbers per round: at least 1, at most `most`.

    Examples
    --------
    >>> rows_at_once(1000, 128), rows_at_once(10_000, 128), rows_at_once(10**9, 128)
    (128, 52, 1)
    """
    return max(1, min(most, WORKING_BYTES // (8 * ARRAYS * max(1, width))))


LONG_WORK = 3e7
"""Work from which on a round is long, in multiplications of a matrix product: 3 ms at about 0.1 ns each."""

KERNEL_WORK = 40.0
"""Cost of a kernel value, in the same units."""

DRAW_WORK = 300.0
"""Cost of a random number and its transformation, in the same units."""


def embedding_work(points: int) -> float:
    """Cost of building an embedding of this many points: their kernel matrix and its eigenvectors."""
    return points * points * (KERNEL_WORK + points)
