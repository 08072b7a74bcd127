"""What late truths cost, beside what they may cost at most: `python -m bench.delay`.

Ten streams, real ones, made-up ones and adversaries, each with truths that come late in several ways: the regret of the
forecasts that were *issued*, against the best function in hindsight, and its bound. Of ridge regression and the Aggregating
Algorithm it is known before any truth is (`diagnostics.late_ridge_bound`); of `kons` and `kernel-aioli` it is their bound in
the order of arrival and the largest slope times how far forecasts moved between issue and truth. Exits with 1 if a regret is
above its bound, or if ridge regression in batches is above the batch's length times its bound.

Then the mean squared error of the issued forecasts of `kernel-aar`; of as many learners as rounds are late, each with its
part of the stream [joulani2013]; and of the form that learns inputs when the forecast is made, and truths when they come.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from river import datasets
from scipy.linalg import solve_triangular
from threadpoolctl import threadpool_limits

from bench.late import I64, LatePlay, Schedule, play_late, schedule
from bench.streams import Stream, magic_stream, scaled
from okl_core import Gaussian, create, diagnostics
from okl_core.losses import LOSSES
from okl_core.types import F64

ROUNDS = 400
REGULARIZATION = 0.3
Y = 1.0
"""Truths are scaled to [-1, 1], and forecasts clipped."""
BATCH = 20
NORM = 5.0
"""B of `kernel-aioli`."""
DELAYS = ("none", "all 1", "all 10", "all 50", "random 10", "high ones 40", "reversed 20", "batches 20")
LATE = ("all 10", "all 50", "random 10")


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    X: F64
    y: F64 | None
    """None: the opposite of what the learner forecasts, an adversary who sees it."""
    is_real: bool
    kernel: Gaussian


def entry(name: str, X: F64, y: F64 | None, *, is_real: bool = False) -> Entry:
    """Inputs in [0, 1], truths in [-1, 1], sigma a quarter of the diagonal."""
    X = scaled(X[:ROUNDS])
    return Entry(name, X, None if y is None else 2.0 * scaled(y[:ROUNDS, None])[:, 0] - 1.0, is_real, kernel_for(X))


def kernel_for(X: F64) -> Gaussian:
    return Gaussian(sigma=0.25 * X.shape[1] ** 0.5)


def river_stream(stream: Any) -> Stream:
    rows = [([x.toordinal() if hasattr(x, "toordinal") else float(x) for x in row.values()], y) for row, y in stream]
    return np.array([x for x, _ in rows], float), np.array([y for _, y in rows], float)


def entries() -> Iterator[Entry]:
    rng, t = np.random.default_rng(0), np.arange(ROUNDS)
    yield entry("MAGIC", *magic_stream(None), is_real=True)
    for stream in (
        datasets.Phishing(),
        datasets.Bananas(),
        datasets.ChickWeights(),
        datasets.TrumpApproval(),
        datasets.AirlinePassengers(),
    ):
        yield entry(type(stream).__name__, *river_stream(stream), is_real=True)
    X = rng.uniform(size=(ROUNDS, 3))
    yield entry("smooth", X, np.sin(6.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(ROUNDS))
    yield entry("turning", X, np.cos(t / 40) * (X[:, 0] - 0.5) + np.sin(t / 40) * (X[:, 1] - 0.5))
    # One input, and truths that turn just when the last ones have arrived.
    yield entry("one input", np.where(t[:, None] % 2, [0.0, 0.01], [0.0, 0.0]), np.where(t // 11 % 2, 1.0, -1.0))
    yield entry("opposite", np.round(rng.uniform(size=(ROUNDS, 2)), 1), None)


def times_of(name: str, y: F64) -> Schedule:
    """A schedule by its name; one of `high ones` delays the truths above their mean, as an adversary may."""
    t, rng = np.arange(len(y)), np.random.default_rng(1)
    kind, _, rounds = name.rpartition(" ")
    count = 0 if name == "none" else int(rounds)
    if kind == "random":
        return schedule(rng.geometric(1.0 / count, len(y)))
    if kind == "high ones":
        return schedule(np.where(y > y.mean(), count, 0))
    if kind == "reversed":
        # Blocks come after their last forecast, the last round first.
        return schedule(2 * (count - 1 - t % count) + 1)
    if kind == "batches":
        return schedule(count - 1 - t % count)
    return schedule(np.full(len(y), count))


def opposed(spec: dict[str, Any], X: F64, times: Schedule) -> F64:
    """Truths that are as far from the issued forecasts as they can be."""
    learner = create(spec, dim=X.shape[1])
    y, learned = np.empty(len(X)), 0
    for t, known in enumerate(times.known.tolist()):
        rows = times.order[learned:known]
        if len(rows):
            learner.run(X[rows], y[rows])
        learned = known
        y[t] = -1.0 if learner.predict(X[t]).value >= 0.0 else 1.0
    return y


@dataclass(frozen=True, slots=True)
class Cost:
    """The regret of a learner's issued forecasts, and what it is at most."""

    regret: float
    bound: float

    @property
    def is_crossed(self) -> bool:
        return not self.regret <= self.bound + 1e-6 * (1.0 + abs(self.bound))


class Best(NamedTuple):
    """The best functions in hindsight: no order of the rounds changes them."""

    ridge: float
    newton: diagnostics.Comparator
    improper: diagnostics.Comparator

    @classmethod
    def of(cls, kernel: Gaussian, X: F64, y: F64) -> Best:
        # The objective has half of the regularization, and the loss is not halved.
        ridge = diagnostics.best_in_hindsight(kernel, X, y, "squared", regularization=2.0 * REGULARIZATION)
        newton = diagnostics.best_in_hindsight(kernel, X, y, "squared", regularization=REGULARIZATION, clip=Y)
        improper = diagnostics.best_in_hindsight(kernel, X, signs(y), "logistic", radius=NORM)
        return cls(ridge.lower, newton, improper)


def signs(y: F64) -> F64:
    return np.where(y >= np.median(y), 1.0, -1.0)


def least_squares(
    kernel: Gaussian, X: F64, y: F64, times: Schedule, best: Best, *, is_shrunk: bool
) -> tuple[Cost, float]:
    """Of `kernel-ridge` or `kernel-aar`; and the log determinant."""
    config = {"kernel": kernel.model_dump(), "regularization": REGULARIZATION, "clip": Y}
    learner = create({"kind": "kernel-aar" if is_shrunk else "kernel-ridge", "config": config}, dim=X.shape[1])
    issued = play_late(learner, X, y, times).issued
    order = times.order
    K = kernel.gram(X[order])
    bound = diagnostics.late_ridge_bound(K, REGULARIZATION, Y, times.known[order], is_shrunk=is_shrunk)
    return Cost(float(((issued - y) ** 2).sum()) - best.ridge, bound), diagnostics.log_det(K, REGULARIZATION)


def moved(played: LatePlay, slope: float) -> float:
    return slope * float(np.abs(played.issued - played.fresh).sum())


def newton(kernel: Gaussian, X: F64, y: F64, times: Schedule, best: diagnostics.Comparator) -> Cost:
    """Of `kons` with the squared loss."""
    config = {"kernel": kernel.model_dump(), "loss": "squared", "clip": Y, "regularization": REGULARIZATION}
    learner = create({"kind": "kons", "config": config}, dim=X.shape[1])
    played, told, loss = play_late(learner, X, y, times), learner.describe(), LOSSES["squared"]
    bound = diagnostics.kons_bound(best.norm, REGULARIZATION, told["bound_gradient"], told["bound_step"])
    regret = float((loss.values(played.issued, y) - best.losses).sum())
    return Cost(regret, bound + best.gap + moved(played, loss.lipschitz(Y)))


def improper(kernel: Gaussian, X: F64, y: F64, times: Schedule, best: diagnostics.Comparator) -> Cost:
    """Of `kernel-aioli`, whose truths are the signs."""
    labels, B = signs(y), NORM
    learner = create(
        {"kind": "kernel-aioli", "config": {"kernel": kernel.model_dump(), "comparator_norm": B}}, dim=X.shape[1]
    )
    played, loss = play_late(learner, X, labels, times), LOSSES["logistic"]
    bound = best.norm**2 / B**2 + learner.describe()["bound"] + moved(played, 1.0)
    return Cost(float((loss.values(played.issued, labels) - best.losses).sum()), bound + best.gap)


def in_parts(make: Callable[[], Any], X: F64, y: F64, times: Schedule) -> F64:
    """Forecasts of a pool of learners: each round takes the first that waits for no truth, or a new one."""
    values = np.empty(len(y))
    learners: list[Any] = []
    free: list[int] = []
    taken: dict[int, int] = {}
    learned = 0
    for t, known in enumerate(times.known.tolist()):
        for row in times.order[learned:known].tolist():
            learners[taken[row]].update(X[row], y[row])
            free.append(taken.pop(row))
        learned = known
        if not free:
            free.append(len(learners))
            learners.append(make())
        taken[t] = min(free)
        free.remove(taken[t])
        values[t] = learners[taken[t]].predict(X[t]).value
    return values


def inputs_at_once(kernel: Gaussian, X: F64, y: F64, times: Schedule) -> F64:
    """Forecasts of phi^T A^{-1} s with all inputs so far in A, the present one too, and in s the truths that have come."""
    K = kernel.gram(X)
    L = np.linalg.cholesky(K + REGULARIZATION * np.eye(len(y)))
    arrived, values, learned = np.zeros(len(y)), np.empty(len(y)), 0
    for t, known in enumerate(times.known.tolist()):
        rows = times.order[learned:known]
        arrived[rows], learned = y[rows], known
        n = t + 1
        z = solve_triangular(L[:n, :n], arrived[:n], lower=True)
        values[t] = solve_triangular(L[:n, :n], K[t, :n], lower=True) @ z
    return np.clip(values, -Y, Y)


def beside(part: Entry, late: str) -> tuple[float, ...]:
    """Mean squared errors: truths at once, learned when they come, in parts, inputs at once."""
    assert part.y is not None
    X, y, kernel = part.X, part.y, part.kernel

    def make() -> Any:
        config = {"kernel": kernel.model_dump(), "regularization": REGULARIZATION, "clip": Y}
        return create({"kind": "kernel-aar", "config": config}, dim=X.shape[1])

    times = times_of(late, y)
    forecasts = (
        make().run(X, y).values,
        play_late(make(), X, y, times).issued,
        in_parts(make, X, y, times),
        inputs_at_once(kernel, X, y, times),
    )
    return tuple(float(((values - y) ** 2).mean()) for values in forecasts)


def row(part: Entry, late: str, best: Best | None) -> bool:
    """Print a line of the first table; is a bound crossed?"""
    X, kernel = part.X, part.kernel
    y = np.empty(len(X))
    if part.y is not None:
        y = part.y
    times = times_of(late, y if part.y is not None else X[:, 0])
    if part.y is None:
        config = {"kernel": kernel.model_dump(), "regularization": REGULARIZATION, "clip": Y}
        y = opposed({"kind": "kernel-aar", "config": config}, X, times)
    best = best or Best.of(kernel, X, y)
    ridge, log_det = least_squares(kernel, X, y, times, best, is_shrunk=False)
    aar, _ = least_squares(kernel, X, y, times, best, is_shrunk=True)
    costs = {
        "ridge": ridge,
        "aar": aar,
        "kons": newton(kernel, X, y, times, best.newton),
        "aioli": improper(kernel, X, y, times, best.improper),
    }
    if late.startswith("batches"):
        costs["batch"] = Cost(ridge.regret, 4.0 * Y * Y * BATCH * log_det)
    crossed = [name for name, cost in costs.items() if cost.is_crossed]
    numbers = "".join(f"{cost.regret:>9.1f} of{cost.bound:>9.1f}" for name, cost in costs.items() if name != "batch")
    lags: I64 = times.lags
    print(
        f"{part.name:<18}{late:<14}{lags.mean():>6.1f}{lags.max():>5}{numbers}  {', '.join(crossed)}".rstrip(),
        flush=True,
    )
    return bool(crossed)


def main(arguments: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(prog="bench.delay", description=__doc__).parse_args(arguments)
    crossed = False
    with threadpool_limits(1):
        parts = list(entries())
        names = "".join(f"{name:>21}" for name in ("kernel-ridge", "kernel-aar", "kons", "kernel-aioli"))
        print(f"{'stream':<18}{'late':<14}{'lag':>6}{'most':>5}{names}  crossed")
        for part in parts:
            best = None if part.y is None else Best.of(part.kernel, part.X, part.y)
            for late in DELAYS:
                crossed |= row(part, late, best)
        print(f"\n{'stream':<18}{'late':<14}{'at once':>10}{'on arrival':>12}{'in parts':>10}{'inputs at once':>16}")
        for part in parts:
            for late in LATE if part.y is not None else ():
                errors = beside(part, late)
                print(
                    f"{part.name:<18}{late:<14}{errors[0]:>10.4f}{errors[1]:>12.4f}{errors[2]:>10.4f}{errors[3]:>16.4f}"
                )
    return int(crossed)


if __name__ == "__main__":
    raise SystemExit(main())
