"""How large a block may be, so that its arrays fit into a working memory of fixed size; and which rounds are long."""

from __future__ import annotations

WORKING_BYTES = 2**24
"""For what a block makes beside the state. Enough for blocks of full length up to some 4,000 numbers a round; with more, the
length hides less and less, since a single round reads more than the caches hold."""

ARRAYS = 4
"""Arrays of the width that a block is asked about, at once."""


def rows_at_once(width: int, most: int) -> int:
    """Rounds of a block whose arrays have `width` numbers for each, at least 1 and at most `most`.

    Examples
    --------
    >>> rows_at_once(1000, 128), rows_at_once(10_000, 128), rows_at_once(10**9, 128)
    (128, 52, 1)
    """
    return max(1, min(most, WORKING_BYTES // (8 * ARRAYS * max(1, width))))


LONG_WORK = 3e7
"""Multiplications of a matrix product, some 0.1 ns each, from which on a round is a long one: 3 ms."""

KERNEL_WORK = 40.0
"""What a kernel value takes, in these."""

DRAW_WORK = 300.0
"""What a random number with its transformation takes."""


def embedding_work(points: int) -> float:
    """What an embedding of so many points takes: their kernel matrix, and eigenvectors of it."""
    return points * points * (KERNEL_WORK + points)
