r"""Time-uniform bounds on the deviation of a sum of bounded numbers from the sum of its conditional means.

Numbers d_i lie in an interval of length c. mu_i is the mean of d_i given all earlier numbers, and g_i any guess of d_i that
is made before d_i and lies in the interval. With S_n = sum (d_i - mu_i) and V_n = sum (d_i - g_i)^2,

    P(S_n >= u(V_n) for some n) <= alpha,    u(v) = c min_k (ln(1 / (alpha w_k)) + psi(lambda_k) v / c^2) / lambda_k,

and likewise for -S_n. There is no further assumption on the d_i: they may depend on each other and drift.

| symbol   | meaning                                                             |
|----------|---------------------------------------------------------------------|
| lambda_k | 0.7 0.6^k, k = 0 ... 27: each is optimal for one size of V          |
| w_k      | 1 / ((k + 1) (k + 2)), shares of alpha, which sum to less than 1    |
| psi      | -ln(1 - lambda) - lambda, near lambda^2 / 2 for a small lambda       |

Proof. For c = 1 and x >= -1, exp(lambda x - psi(lambda) x^2) <= 1 + lambda x [fan2015]. With x = d_i - g_i, and as
exp(-lambda (mu_i - g_i)) (1 + lambda (mu_i - g_i)) <= 1, exp(lambda S_n - psi(lambda) V_n) is a nonnegative supermartingale
that starts at 1. By Ville's inequality it reaches 1 / (alpha w_k) with probability at most alpha w_k; sum over k.

This is the empirical Bernstein confidence sequence of [howard2021], theorem 4, with the minimum of several lines in place of
its stitched or mixture boundary. It has a closed form, lies below the stitched boundary everywhere, and for v from 1 to 10^6
is between 0.9 and 1.15 times the gamma-exponential mixture boundary of [choe2024], which must be found numerically.
"""

from __future__ import annotations

import math

import numpy as np

from okl_core.types import F64

LAMBDAS = tuple(0.7 * 0.6**k for k in range(28))
"""The smallest is optimal for V near 10^13."""
WEIGHTS = tuple(1.0 / ((k + 1) * (k + 2)) for k in range(len(LAMBDAS)))
_LINES = tuple(
    (math.log(1.0 / weight) / lam, 1.0 / lam, -(math.log1p(-lam) + lam) / lam)
    for lam, weight in zip(LAMBDAS, WEIGHTS, strict=True)
)
"""For each k: ln(1 / w) / lambda, 1 / lambda, and the slope psi / lambda."""
_ROWS: F64 = np.array(_LINES)


def boundary(v: float, alpha: float, c: float = 1.0) -> float:
    """u(v) for v >= 0, 0 < alpha < 1 and c > 0. Takes about 3 us.

    Examples
    --------
    >>> [round(boundary(v, 0.025), 1) for v in (0.0, 10.0, 1000.0)]
    [6.3, 13.5, 126.5]
    """
    log, scaled = -math.log(alpha), v / (c * c)
    return c * min(offset + log * inverse + slope * scaled for offset, inverse, slope in _LINES)


def boundaries(v: F64, alpha: F64 | float, c: float = 1.0) -> F64:
    """u(v) of arrays that broadcast together; equals `boundary` elementwise, up to rounding."""
    log, scaled = -np.log(np.asarray(alpha, dtype=np.float64)), np.asarray(v, dtype=np.float64) / (c * c)
    # The line that is least has a larger k the larger v is, and the smaller the logarithm. Rounding chooses of two that meet.
    first = (_ROWS @ (1.0, log.max(initial=0.0), scaled.min(initial=math.inf))).argmin()
    last = (_ROWS @ (1.0, log.min(initial=math.inf), scaled.max(initial=0.0))).argmin()
    offset, inverse, slope = _ROWS[min(first, last) : max(first, last) + 1].T
    return c * (offset + log[..., None] * inverse + slope * scaled[..., None]).min(axis=-1)
