"""What late truths cost, beside what they may cost at most: `python -m bench.delay`.

Ten streams, real ones, made-up ones and adversaries, each with truths that come late in several ways: the regret of the
forecasts that were *issued*, against the best function in hindsight, and its bound. Of ridge regression and the Aggregating
Algorithm it is known before any truth is (`diagnostics.late_ridge_bound`); of `kons` and `kernel-aioli` it is their bound in
the order of arrival and the largest slope times how far forecasts moved between issue and truth. The delayed forms of
`kernel-aar` and `kons` have bounds of their own. Exits with 1 if a regret is above its bound, or if ridge regression in
batches is above the batch's length times its bound.

Then the mean squared errors of issued forecasts: of `kernel-aar`; of as many learners as rounds are late, each with its
part of the stream [joulani2013]; of its delayed form; and of `kons` and its delayed form, with adaptive steps. Beside them
what the last three of these ways have over learning on arrival.

Last, where the theory says that the delayed form is ahead: places that are new, whose truths turn when they begin to come.
`--figure` draws these regrets against the delay.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from river import datasets
from threadpoolctl import threadpool_limits

from bench.late import I64, LatePlay, Schedule, play_delayed, play_late, schedule
from bench.papers.kons_figures import STYLE, save
from bench.streams import Stream, magic_stream, scaled
from okl_core import Gaussian, create, create_delayed, diagnostics
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


def aar_spec(kernel: Gaussian, kind: str = "kernel-aar") -> dict[str, Any]:
    return {"kind": kind, "config": {"kernel": kernel.model_dump(), "regularization": REGULARIZATION, "clip": Y}}


def newton_spec(kernel: Gaussian, step: str = "curvature") -> dict[str, Any]:
    spec = aar_spec(kernel, "kons")
    return spec | {"config": spec["config"] | {"loss": "squared", "step": step}}


def least_squares(
    kernel: Gaussian, X: F64, y: F64, times: Schedule, best: float, *, is_shrunk: bool
) -> tuple[Cost, float]:
    """Of `kernel-ridge` or `kernel-aar`; and the log determinant."""
    learner = create(aar_spec(kernel, "kernel-aar" if is_shrunk else "kernel-ridge"), dim=X.shape[1])
    issued = play_late(learner, X, y, times).issued
    order = times.order
    K = kernel.gram(X[order])
    bound = diagnostics.late_ridge_bound(K, REGULARIZATION, Y, times.known[order], is_shrunk=is_shrunk)
    return Cost(float(((issued - y) ** 2).sum()) - best, bound), diagnostics.log_det(K, REGULARIZATION)


def delayed_aar(kernel: Gaussian, X: F64, y: F64, times: Schedule, best: float) -> Cost:
    """Of the delayed form of `kernel-aar`."""
    learner = create_delayed(aar_spec(kernel), X.shape[1])
    issued = play_delayed(learner, X, y, times)
    return Cost(float(((issued - y) ** 2).sum()) - best, learner.describe()["bound"])


def moved(played: LatePlay, slope: float) -> float:
    return slope * float(np.abs(played.issued - played.fresh).sum())


def newton(kernel: Gaussian, X: F64, y: F64, times: Schedule, best: diagnostics.Comparator) -> Cost:
    """Of `kons` with the squared loss."""
    learner = create(newton_spec(kernel), dim=X.shape[1])
    played, told, loss = play_late(learner, X, y, times), learner.describe(), LOSSES["squared"]
    bound = diagnostics.kons_bound(best.norm, REGULARIZATION, told["bound_gradient"], told["bound_step"])
    regret = float((loss.values(played.issued, y) - best.losses).sum())
    return Cost(regret, bound + best.gap + moved(played, loss.lipschitz(Y)))


def delayed_newton(kernel: Gaussian, X: F64, y: F64, times: Schedule, best: diagnostics.Comparator) -> Cost:
    """Of the delayed form of `kons`."""
    learner = create_delayed(newton_spec(kernel), X.shape[1])
    issued = play_delayed(learner, X, y, times)
    bound = 0.5 * REGULARIZATION * best.norm**2 + learner.describe()["bound"]
    return Cost(float((LOSSES["squared"].values(issued, y) - best.losses).sum()), bound + best.gap)


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


def beside(part: Entry, late: str) -> tuple[float, ...]:
    """Mean squared errors: truths at once, learned when they come, in parts, delayed; `kons` on arrival, and delayed."""
    assert part.y is not None
    X, y, d = part.X, part.y, part.X.shape[1]
    aar, kons = aar_spec(part.kernel), newton_spec(part.kernel, "adaptive")

    def make() -> Any:
        return create(aar, d)

    times = times_of(late, y)
    forecasts = (
        make().run(X, y).values,
        play_late(make(), X, y, times).issued,
        in_parts(make, X, y, times),
        play_delayed(create_delayed(aar, d), X, y, times),
        play_late(create(kons, d), X, y, times).issued,
        play_delayed(create_delayed(kons, d), X, y, times),
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
        y = opposed(aar_spec(kernel), X, times)
    best = best or Best.of(kernel, X, y)
    ridge, log_det = least_squares(kernel, X, y, times, best.ridge, is_shrunk=False)
    aar, _ = least_squares(kernel, X, y, times, best.ridge, is_shrunk=True)
    costs = {
        "ridge": ridge,
        "aar": aar,
        "delayed aar": delayed_aar(kernel, X, y, times, best.ridge),
        "kons": newton(kernel, X, y, times, best.newton),
        "delayed kons": delayed_newton(kernel, X, y, times, best.newton),
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


PLACES_ROUNDS = 800
PLACES_DELAYS = (2, 5, 10, 20, 50, 100)
"""Rounds after which a truth is known; 1 is not late."""


class AtPlaces(NamedTuple):
    """Regrets and bounds of one delay."""

    delay: int
    arrival: Cost
    delayed: Cost


def new_places(delay: int) -> tuple[F64, F64, Schedule]:
    """2 tau rounds at each place: truths of 1 until the first ones come, then of -1."""
    t = np.arange(PLACES_ROUNDS)
    X = np.array(2.0 * (t // (2 * delay)), dtype=np.float64)[:, None]
    y = np.where(t % (2 * delay) < delay, 1.0, -1.0)
    return X, y, schedule(np.full(len(t), delay - 1))


def at_places(delay: int) -> AtPlaces:
    kernel = Gaussian(sigma=0.25)
    X, y, times = new_places(delay)
    best = diagnostics.ridge_optimum(kernel.gram(X), y, REGULARIZATION)
    arrival, _ = least_squares(kernel, X, y, times, best, is_shrunk=True)
    return AtPlaces(delay, arrival, delayed_aar(kernel, X, y, times, best))


def draw(path: Path, found: Sequence[AtPlaces]) -> None:
    delays = [one.delay for one in found]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.6, 3.1), layout="constrained")
        axes = figure.subplots()
        for name, colour, costs in (
            ("on arrival", "#D55E00", [one.arrival for one in found]),
            ("delayed form", "#0072B2", [one.delayed for one in found]),
        ):
            axes.plot(delays, [cost.regret for cost in costs], "o-", color=colour, markersize=4.0, label=name)
            axes.plot(delays, [cost.bound for cost in costs], "--", color=colour, label=f"{name}: bound")
        axes.axhline(4.0 * Y * Y * PLACES_ROUNDS, color="#555555", linewidth=0.8, label="what can be lost at all")
        axes.set(xscale="log", yscale="log", xlabel="truth known after, rounds", ylabel="regret")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.set_title(f"kernel-aar, {PLACES_ROUNDS} rounds, new places")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
        save(figure, path)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.delay", description=__doc__)
    parser.add_argument("--figure", type=Path, help="draw the last table, as SVG")
    asked = parser.parse_args(arguments)
    crossed = False
    with threadpool_limits(1):
        parts = list(entries())
        names = "".join(
            f"{name:>21}" for name in ("ridge", "aar", "delayed aar", "kons", "delayed kons", "kernel-aioli")
        )
        print(f"{'stream':<18}{'late':<14}{'lag':>6}{'most':>5}{names}  crossed")
        for part in parts:
            best = None if part.y is None else Best.of(part.kernel, part.X, part.y)
            for late in DELAYS:
                crossed |= row(part, late, best)
        ways = ("at once", "on arrival", "in parts", "delayed", "kons", "delayed kons")
        ratios = ("in parts", "delayed", "delayed kons")
        print(f"\n{'':<110}{'over the same on arrival':>39}")
        print(f"{'stream':<18}{'late':<14}" + "".join(f"{way:>13}" for way in (*ways, *ratios)))
        for part in parts:
            for late in LATE if part.y is not None else ():
                errors = beside(part, late)
                _, aar, parts, delayed, kons, delayed_kons = errors
                over = (parts / aar, delayed / aar, delayed_kons / kons)
                told = "".join(f"{error:>13.4f}" for error in errors) + "".join(f"{ratio:>13.2f}" for ratio in over)
                print(f"{part.name:<18}{late:<14}{told}", flush=True)
        print(f"\n{'new places, late':<18}{'on arrival':>21}{'delayed aar':>21}")
        found = [at_places(delay) for delay in PLACES_DELAYS]
        for one in found:
            costs = (one.arrival, one.delayed)
            print(f"{one.delay:<18}" + "".join(f"{cost.regret:>9.1f} of{cost.bound:>9.1f}" for cost in costs))
            crossed |= any(cost.is_crossed for cost in costs)
        if asked.figure:
            draw(asked.figure, found)
    return int(crossed)


if __name__ == "__main__":
    raise SystemExit(main())
