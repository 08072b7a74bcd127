r"""KORS: online row sampling by ridge leverage scores, which chooses a dictionary for the features of a stream.

| symbol  | meaning                                                                         | in [calandriello2017] |
|---------|---------------------------------------------------------------------------------|-----------------------|
| phi_t   | feature of round t, times a scale chosen by the caller                          | section 4             |
| alpha   | regularization                                                                  | algorithm 2           |
| I       | the dictionary: the points that were kept, each with probability p_i            | algorithm 2           |
| A^I     | alpha I + sum_{i in I} phi_i phi_i^T / p_i, an estimate of alpha I + sum phi_s phi_s^T | section 4      |
| s_t     | phi_t^T (A^I)^{-1} phi_t                                                        | equation 4            |
| tau     | (1 + epsilon) s / (1 + s), an overestimate of the ridge leverage score          | equation 4            |
| beta    | oversampling: a point is kept with probability min(beta tau, 1)                 | algorithm 2           |

| algorithm 2                  | here                                                                              |
|------------------------------|-----------------------------------------------------------------------------------|
| 1: I is empty                | `WeightedFactor.empty`                                                            |
| 4, 5: tau, equation 4        | `Kors.leverage`; s / (1 + s) is what the temporary dictionary, with t in it, gives |
| 5: its probability           | `Kors.probability`                                                                |
| 6: the coin                  | `Sketch.toss` or `Embedding.choose`                                               |
| 6: t joins I                 | `Kors.keep`                                                                       |

`KorsBlock` does the same for a block of rounds. A^I is a `weighted_factor` with the weights scale_i^2 / p_i, and
s_t = scale^2 v / alpha with the v of that module.

If beta >= 3 log(T / delta) / epsilon^2, then with probability 1 - delta, in all rounds:

- (1 - epsilon) A <= A^I <= (1 + epsilon) A;
- tau is between the leverage score and rho = (1 + epsilon) / (1 - epsilon) times it;
- |I| <= 3 rho beta d_onl, with the online effective dimension d_onl.

References: [calandriello2017] algorithm 2, theorem 2, whose bound on |I| is corrected.
"""

from __future__ import annotations

import math
from typing import NamedTuple, final

from okl_core.linalg.weighted_factor import WeightedBlock, WeightedFactor, diagonal_entry
from okl_core.types import F64


class Leverage(NamedTuple):
    """The leverage score of a point, and its z and v with respect to the dictionary's `weighted_factor`."""

    tau: float
    z: F64
    variance: float


@final
class Kors(NamedTuple):
    """The sampler. alpha, beta > 0, 0 < eps < 1.

    Examples
    --------
    >>> import numpy as np
    >>> kors = Kors(regularization=1.0, oversampling=4.0, accuracy=0.5)
    >>> kept = WeightedFactor.empty()
    >>> first = kors.leverage(kept, np.empty(0), kappa=1.0)
    >>> first.tau, kors.probability(first.tau)
    (0.75, 1.0)
    >>> kors.keep(kept, first, 1.0)
    >>> round(kors.leverage(kept, np.ones(1), kappa=1.0).tau, 12)
    0.5
    """

    regularization: float = 1.0
    oversampling: float = 4.0
    accuracy: float = 0.5

    def leverage(self, kept: WeightedFactor, row: F64, kappa: float, scale: float = 1.0) -> Leverage:
        """Return the score of scale phi(x), from the dictionary's kernel row and kappa = k(x, x): O(|I|^2)."""
        z = kept.solve(row)
        variance = max(kappa - float(z @ z), 0.0)
        return Leverage(self.score(variance, scale), z, variance)

    def score(self, variance: float, scale: float = 1.0) -> float:
        """Return tau, from v of the feature without its scale."""
        s = scale * scale * variance / self.regularization
        # s / (1 + s), in a form that is correct even if s overflows.
        return (1.0 + self.accuracy) / (1.0 + 1.0 / s) if s > 0.0 else 0.0

    def probability(self, tau: float) -> float:
        return min(self.oversampling * tau, 1.0)

    def keep(self, kept: WeightedFactor, leverage: Leverage, probability: float, scale: float = 1.0) -> None:
        """Add a point that was kept with this probability in (0, 1]: O(|I|)."""
        root = scale / math.sqrt(probability)
        kept.append(leverage.z, root, diagonal_entry(self.regularization, root, leverage.variance))


@final
class KorsBlock:
    """A block of n points, sampled one by one like `Kors`, but from one kernel matrix and one solve.

    K, shape (n, n), is their kernel matrix; `rows`, shape (|I|, n), are the kernel values of the dictionary with them.
    """

    def __init__(self, kors: Kors, kept: WeightedFactor, K: F64, rows: F64) -> None:
        self.kors = kors
        self._block = WeightedBlock(kept, K, rows)

    def score(self, j: int, scale: float = 1.0) -> float:
        """Return tau of point j, given which points before it have joined."""
        return self.kors.score(max(self._block.variance(j), 0.0), scale)

    def keep(self, j: int, probability: float, scale: float = 1.0) -> None:
        """Add point j, which was kept with this probability: O(n^2)."""
        self.join(j, scale / math.sqrt(probability))

    def join(self, j: int, root: float) -> None:
        """Add point j with the weight root^2: O(n^2)."""
        self._block.join(j, root, diagonal_entry(self.kors.regularization, root, max(self._block.variance(j), 0.0)))

    def join_all(self, roots: F64) -> None:
        """Add all points with the weights roots^2: O(n^3)."""
        if self._block.join_all(roots, self.kors.regularization) is None:
            # alpha is below rounding here.
            for j, root in enumerate(roots.tolist()):
                self.join(j, root)

    def settle(self) -> None:
        """Write the points that joined into the dictionary."""
        self._block.settle()
