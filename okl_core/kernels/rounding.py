"""How far rounding is magnified in a function of stored points that a matrix of their kernel values was solved for."""

from __future__ import annotations

import math


def magnified(condition: float, mass: float) -> float:
    """Return the conditioning of f = sum_i a_i k(s_i, .), in units of k(x, x) = 1.

    `condition` is that of the points' kernel matrix L L^T, `mass` is sum |a_i|. The rounding of kernel values comes back
    times L^{-1}, so by the root of the condition for each a_i; relative to |f|, by the condition at most.
    """
    root = math.sqrt(condition)
    return mass + root * min(root, max(1.0, mass))
