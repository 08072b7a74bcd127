"""Phases of doubling length: phase i = 1, 2, ... has 2^i rounds and ends with round T(i) = 2^(i + 1) - 2.

If only so many rounds may be stored, the last phase end within them is followed by a phase without end.

References: [kuzborskij2017] section 4.
"""

from __future__ import annotations

import math


def phase_of(t: int) -> int:
    """The phase of round t >= 1."""
    return (t + 1).bit_length() - 1


def phase_end(t: int) -> int:
    """T(i) for the phase i of round t >= 1.

    Examples
    --------
    >>> [phase_end(t) for t in (1, 2, 3, 6, 7)]
    [2, 2, 6, 6, 14]
    """
    return 2 ** (phase_of(t) + 1) - 2


def last_phase_end(memory: int | None) -> float:
    """The largest T(i) <= memory; infinite without a limit.

    Examples
    --------
    >>> [last_phase_end(memory) for memory in (2, 5, 6, None)]
    [2, 2, 6, inf]
    """
    return math.inf if memory is None else 2 ** phase_of(memory + 1) - 2
