r"""Improper online logistic regression (AIOLI): the rule of its linear, kernel and embedded forms.

| symbol     | meaning                                                                  | in [jezequel2020]   |
|------------|--------------------------------------------------------------------------|---------------------|
| a          | the forecast, x_t^T theta_t; not clipped, and not linear in x_t          | algorithm 1         |
| p          | 1 / (1 + exp(y a)), the probability that was not given to the truth      |                     |
| B          | bound on the norm of the comparators                                     | section 3           |
| R          | \|phi_t\|, or a bound on it                                              | section 3           |
| lambda     | weight of \|theta\|^2: A_0 = 2 lambda I                                  | algorithm 1         |
| kappa      | how much flatter the surrogate is than the loss: 1 + B R, 1 + B R / 2,   | lemma 5             |
|            | or the least that suffices (`least_flatness`)                            |                     |
| w          | p (1 - p) / kappa, the weight of phi_t phi_t^T in A_t                    |                     |
| c          | w a + y p, the coefficient of phi_t in s_t                               |                     |
| omega      | weight of a round; A and s add omega w phi_t phi_t^T and omega c phi_t    | 1                   |
| h          | the hedge: how often the losses of both truths count; 1 without weights   | 1                   |
| m, q       | phi_t^T A_{t-1}^{-1} s_{t-1} and phi_t^T A_{t-1}^{-1} phi_t, of the engine |                   |

The surrogate of a past round s is the parabola under the loss l(u) = log(1 + exp(-y u)) that touches it at a_s,

    l(a_s) + l'(a_s) (u - a_s) + (w_s / 2) (u - a_s)^2 <= l(u)   for all |u| <= B R.

The paper has kappa = 1 + B R. 1 + B R / 2 suffices, and the least sufficient kappa has a closed form: docs/theorems.md, 2.

theta_t minimises the sum of the past surrogates, lambda |theta|^2, and the losses of *both* truths at x_t. The minimum over
all other directions has a closed form, which leaves one equation in one unknown: a + q tanh(a / 2) = m.

References: [jezequel2020] algorithm 1, lemma 5; lemmas 2 and 3 solve the same problem in two dimensions.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Annotated, Literal, NamedTuple, Self, final

from pydantic import Field

from okl_core.contract.rng import RoundRng
from okl_core.errors import DivergedError
from okl_core.kernels.kernels import Kernel
from okl_core.losses import LOSSES, least_flatness, sigmoid
from okl_core.second_order.forgetting import HalfLife, LearnedHalfLife
from okl_core.second_order.space_and_rule import Decision, Moments, Totals
from okl_core.types import F64, REALS, LearnerConfig, bearable

EPSILON = 2.0**-52
LONGEST = 2**53
"""The most rounds of a half-life; those of a longer one would never fade in float64 either."""
TOLERANCE = 1e-14
"""Relative step size at which Newton's iteration stops."""
STEPS = 60
"""Maximum number of steps. Far below the root each is about 1, and from 38 on tanh is 1 in float64."""


Curvature = Literal["paper", "half", "exact"]


class ImproperConfig(LearnerConfig, ABC):
    """Parameters of every form of AIOLI."""

    comparator_norm: float = Field(
        default=2.0,
        gt=0.0,
        description="B: bound on the norm of the comparators, not of what it learns; larger is less cautious.",
    )
    input_norm: Annotated[float, Field(ge=0.0)] | Literal["warmup"] | None = Field(
        default=None,
        description="R: bound on the norm of the inputs; `warmup` takes the largest of the first inputs. A larger input "
        "counts with its own norm, and by default all do: the guarantee needs no bound.",
    )
    regularization: float | None = Field(default=None, gt=0.0, description="lambda; 1 / B^2 by default.")
    curvature: Curvature = Field(
        default="half",
        description="kappa: 1 + B R as published (paper), 1 + B R / 2, which suffices (half), or the least that the round's "
        "forecast allows (exact).",
    )
    half_life: LearnedHalfLife = None

    @property
    def alpha(self) -> float:
        """2 lambda."""
        return 2.0 / self.comparator_norm**2 if self.regularization is None else 2.0 * self.regularization

    @property
    def fade(self) -> float:
        """Return what the weight of a past round is multiplied by each round, in the mean."""
        rounds = HalfLife.of(self.half_life).rounds
        return 1.0 if rounds is None else 0.5 ** (1.0 / min(rounds, LONGEST))

    @abstractmethod
    def norms(self, X: F64) -> list[float]:
        """Return |phi| of the inputs X, shape (n, d), or a bound on it."""

    @property
    def rule(self) -> AioliRule:
        largest = self.input_norm if isinstance(self.input_norm, float) else 0.0
        return AioliRule(self.comparator_norm, largest, self.curvature, fade=self.fade)

    def waiting(self) -> list[tuple[tuple[str, ...], str]]:
        return super().waiting() + ([(("input_norm",), "warmup")] if self.input_norm == "warmup" else [])

    def resolved(self, X: F64, y: F64 | None = None) -> Self:
        # Resolve the kernel first, since the norms depend on it.
        config = super().resolved(X, y)
        if config.input_norm != "warmup":
            return config
        return config.model_copy(update={"input_norm": bearable(max(config.norms(X), default=0.0))})


class KernelImproperConfig(ImproperConfig):
    """The parameters of AIOLI for functions of a kernel."""

    comparator_norm: float = Field(
        default=10.0, gt=0.0, description="B: bound on the norm of the functions that it competes with."
    )


def kernel_norms(kernel: Kernel, X: F64) -> list[float]:
    """Return the root of k(x, x), which is |phi|, or a bound on it if phi is projected, for X of shape (n, d).

    Inputs that the kernel refuses have none, since no learner takes them.
    """
    norms: list[float] = []
    for x in X:
        with contextlib.suppress(DivergedError):
            norms.append(math.sqrt(kernel.at(x)))
    return norms


def improper_value(m: float, q: float) -> float:
    """Return the root a of a + q tanh(a / 2) = m, for q >= 0.

    The left side is increasing and concave on [0, inf), so for m >= 0 Newton's iterates increase to the root from below it.
    """
    target = abs(m)
    a = max(target - q, target / (1.0 + 0.5 * q))
    for _ in range(STEPS):
        tanh = math.tanh(0.5 * a)
        step = (target - a - q * tanh) / (1.0 + 0.5 * q * (1.0 - tanh * tanh))
        a += step
        if step <= TOLERANCE * a:
            break
    return math.copysign(a, m)


@final
@dataclass(slots=True)
class AioliTotals(Totals):
    """The running sums of the regret bound, and of omega^2, which fades."""

    bound: float
    squares: float


@final
class AioliRule(NamedTuple):
    r"""w = p (1 - p) / kappa, c = w a + y p; kappa is for the round's norm, or for `largest_norm` if that is larger.

    `bound` is the sum of p (1 - p) q / (1 + w q). With it, for every theta of the feature space with norm at most B,

        loss <= sum l(x_s^T theta) + lambda |theta|^2 + bound.

    Proof: let L_t be lambda |theta|^2 plus the surrogates of the first t rounds, which are below the losses. The regret is at
    most lambda |theta|^2 plus the sum of l(a_t) + min L_{t-1} - min L_t. Each of these terms is at most
    p (1 - p) phi_t^T A_t^{-1} phi_t, the term of `bound`. If no kappa exceeds K, the sum is at most K `log_det`.

    With weights the losses of both truths at x_t count h times, since the weight of their round is not known yet: h is the
    root mean square of the weights so far, and at least 1. The equation is a + h q tanh(a / 2) = m. Where rounds are
    forgotten, their weights fade from h too: with s rounds after it, one counts `fade`^s.

    A round of weight omega adds omega (omega g^2 q - 2 g (m - a) - w (m - a)^2) / (2 (1 + omega w q)), from the minimum along
    x_t^T theta, with m - a = h q tanh(a / 2) = y h q (1 - 2 p) and g = -y p. Without its last term this is

        omega (h p (1 - p) + (omega / 2 - h) p^2) q / (1 + omega w q).

    For omega <= 2 h it is at most omega h p (1 - p) q / (1 + omega w q), and these terms sum to at most the largest h times K
    `log_det`. For larger omega the p^2 term counts too, and the sum need not be of this order: the forecast was not cautious
    enough for so heavy a round.

    References: [jezequel2020] theorem 1 and its proof.
    """

    comparator_norm: float
    largest_norm: float
    curvature: Curvature
    weight: float = 1.0
    hedge: float = 1.0
    fade: float = 1.0
    loss = LOSSES["logistic"]
    truth_range = REALS
    needs_variance = True

    def kappa(self, a: float, square: float) -> float:
        """Return kappa for a forecast a and an input with |phi|^2 = `square`."""
        reach = self.comparator_norm * max(math.sqrt(square), self.largest_norm)
        if self.curvature == "exact":
            return least_flatness(a, reach)
        return 1.0 + (reach if self.curvature == "paper" else 0.5 * reach)

    def weighted(self, weight: float) -> Self:
        return self._replace(weight=weight)

    def rounds_after(self, t: int) -> float:
        """Return the sum of the weights that t rounds still have."""
        if self.fade in (0.0, 1.0):
            return t if self.fade == 1.0 else min(t, 1)
        lost = self.fade - 1.0
        return math.expm1(t * math.log1p(lost)) / lost

    def hedge_after(self, squares: float, t: int) -> float:
        """Return h from the sum of omega^2 over t rounds: the root mean square of omega, at least 1."""
        rounds = self.rounds_after(t)
        # Rounds of weight 1 must not seem heavier because their sum is rounded once for each that counts.
        return math.sqrt(squares / rounds) if squares > rounds * (1.0 + EPSILON * rounds) else 1.0

    def after(self, totals: AioliTotals, t: int) -> Self:
        hedge = self.hedge_after(totals.squares, t)
        return self if hedge == 1.0 else self._replace(hedge=hedge)

    def along(self, totals: AioliTotals, t: int, weights: F64 | None) -> Iterator[Self]:
        if weights is not None:
            return self._along(totals.squares, t, weights.tolist())
        # Rounds of weight 1 leave a hedge of 1 as it is.
        is_one = self.hedge_after(totals.squares, t) == 1.0
        return repeat(self) if is_one else self._along(totals.squares, t, repeat(1.0))

    def _along(self, squares: float, t: int, weights: Iterable[float]) -> Iterator[Self]:
        for rounds, weight in enumerate(weights, t):
            yield self._replace(weight=weight, hedge=self.hedge_after(squares, rounds))
            squares = self.fade * squares + weight * weight

    def value(self, m: float, q: float) -> float:
        return improper_value(m, self.hedge * q)

    def is_idle(self, m: float, y: float) -> bool:
        return False

    def decide(self, moments: Moments, y: float, t: int, rng: RoundRng) -> Decision:
        m, q, square = moments
        a = self.value(m, q)
        p = sigmoid(-y * a)
        kappa = self.kappa(a, square)
        w = p * sigmoid(y * a) / kappa
        rho_delta = 0.0
        if w > 0.0:
            # y p / sqrt(w) - sqrt(w) (m - a), where m - a = h q tanh(a / 2) and p / sqrt(w) = sqrt(kappa p / (1 - p)).
            off = self.hedge * q * math.tanh(0.5 * a)
            rho_delta = y * math.sqrt(kappa) * math.exp(-0.5 * y * a) - math.sqrt(w) * off
        return Decision(a, w, w * a + y * p, rho_delta, -y * p).times(self.weight)

    def totals(self) -> AioliTotals:
        return AioliTotals(0.0, 0.0, 0.0)

    def add(self, totals: AioliTotals, loss: float, q: float, decision: Decision) -> None:
        p, omega, h = abs(decision.g), self.weight, self.hedge
        totals.loss += omega * loss
        totals.bound += omega * (h * p * (1.0 - p) + max(0.5 * omega - h, 0.0) * p * p) * q / (1.0 + decision.w * q)
        totals.squares = self.fade * totals.squares + omega * omega

    def describe(self, totals: AioliTotals, log_det: float) -> dict[str, float]:
        return {"bound": totals.bound}
