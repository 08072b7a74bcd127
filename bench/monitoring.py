"""Do the promises of monitoring hold, and how soon does it tell? `python -m bench.monitoring [--out FOLDER]`.

Three tables over streams that are made up: false alarms of `DriftAlarm` beside the promised 1 %, its delays when the error
rises, and the bands of `Verdict` beside the promised 95 %, with the rounds until it says "better". All streams of a line are
played at once, by a transcription of the definitions; the first few also by the classes themselves, which must tell the same.
Exits with 1 if a promise is broken (1 in 1,000 by chance). With --out the figure `monitoring.svg` is written.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import binom

from okl_core.monitoring import DriftAlarm, PlainClasses, PlainNumbers, Verdict, boundaries
from okl_core.monitoring.drift import ALPHA, BLOCK, EVERY, STAKES, TIMES, UNCOUNTED
from okl_core.monitoring.verdict import LEVEL
from okl_core.types import F64

I64 = NDArray[np.int64]

STREAMS, ROUNDS, CHANGE = 1000, 5000, 2000
CHECKED = 2
"""Streams of a line that the classes play too."""
AT_ONCE = 50
"""Streams whose bands are computed together: it takes 28 numbers a round."""
CHANCE = 0.999
TIMES_OF_VERDICT, MEMORY, UNCOUNTED_BY_VERDICT = 9.0, 128, 16


def first_alarms(errors: F64, is_of_numbers: bool) -> I64:
    """The round of the first alarm of each stream, 0 if there is none; errors of shape (streams, rounds)."""
    skipped = UNCOUNTED if is_of_numbers else 0
    X = errors
    if is_of_numbers:
        X = np.minimum(errors[:, skipped:] / (TIMES * errors[:, :skipped].mean(axis=1, keepdims=True)), 1.0)
    N = len(X)
    stakes, E, alarms = np.array(STAKES), np.zeros((N, len(STAKES))), np.zeros(N, dtype=np.int64)
    total, spread, ceiling = np.zeros(N), np.zeros(N), np.ones(N)
    for i, x in enumerate(X.T, start=1):
        spread += (x - (total + 0.5) / i) ** 2
        total += x
        if i % BLOCK == 0:
            b = int(np.log2(i // BLOCK))
            gain = X[:, i - BLOCK : i].mean(axis=1) / ceiling - 1.0
            E = (1.0 + stakes * gain[:, None]) * (E + 1.0 / ((b + 1) * (b + 2) * 2.0**b))
            is_rich = E.mean(axis=1) >= 2.0 / ALPHA
            alarms[(alarms == 0) & is_rich] = i + skipped
            E[is_rich] = 0.0
        if i % EVERY == 0:
            ceiling = np.minimum(ceiling, (total + boundaries(spread, ALPHA / 2.0)) / i)
    for errors_of_one, t in zip(errors[:CHECKED], alarms[:CHECKED].tolist(), strict=True):
        told = DriftAlarm(is_of_numbers).run(errors_of_one)
        if (told[0].t if told else 0) != t:
            raise AssertionError(f"DriftAlarm tells {told[:1]}, the definition round {t}")
    return alarms


# -- streams of errors -------------------------------------------------------------------------------------------------


def mistakes(p: F64 | float, rng: np.random.Generator) -> F64:
    return (rng.random((STREAMS, ROUNDS)) < p).astype(float)


def clustered(p: float, stay: float, rng: np.random.Generator) -> F64:
    """A Markov chain of mistakes: with probability `stay` the same as before, else drawn anew."""
    X, kept = mistakes(p, rng), rng.random((STREAMS, ROUNDS)) < stay
    for t in range(1, ROUNDS):
        X[kept[:, t], t] = X[kept[:, t], t - 1]
    return X


def quiet_streams(rng: np.random.Generator) -> Iterator[tuple[str, F64, bool, bool]]:
    """Name, errors, are they numbers, is it covered by the guarantee?"""
    for p in (0.01, 0.05, 0.1, 0.3, 0.5):
        yield f"mistakes, {p:g} always", mistakes(p, rng), False, True
    t = np.arange(ROUNDS)
    yield "mistakes, 0.5 falls to 0.05", mistakes(0.05 + 0.45 * np.exp(-t / 500.0), rng), False, True
    yield "mistakes, 0.5 / sqrt(1 + t / 10)", mistakes(0.5 / np.sqrt(1.0 + t / 10.0), rng), False, True
    shape = STREAMS, ROUNDS
    yield "numbers, normal", rng.standard_normal(shape) ** 2, True, True
    yield "numbers, Student, 3 degrees", rng.standard_t(3, shape) ** 2, True, True
    yield "numbers, Cauchy", rng.standard_cauchy(shape) ** 2, True, True
    yield "numbers, falling scale", (rng.standard_normal(shape) * (0.2 + np.exp(-t / 500.0))) ** 2, True, True
    for stay in (0.2, 0.5, 0.9):
        yield f"mistakes, 0.2, kept with {stay:g}", clustered(0.2, stay, rng), False, False
    calm = np.zeros(shape)
    for i in t[1:]:
        calm[:, i] = 0.98 * calm[:, i - 1] + 0.1 * rng.standard_normal(STREAMS)
    yield "numbers, scale walks by half", (rng.standard_normal(shape) * np.exp(calm)) ** 2, True, False


def risen_streams(rng: np.random.Generator) -> Iterator[tuple[str, F64, bool]]:
    """Errors that rise after round 2,000."""
    is_after = np.arange(ROUNDS) >= CHANGE
    pairs = [
        (0.1, 0.9),
        (0.2, 0.8),
        (0.3, 0.7),
        (0.4, 0.6),
        (0.02, 0.05),
        (0.02, 0.1),
        (0.1, 0.15),
        (0.1, 0.2),
        (0.1, 0.3),
    ]
    for before, after in [*pairs, (0.3, 0.4), (0.3, 0.5)]:
        yield f"mistakes, {before:g} to {after:g}", mistakes(np.where(is_after, after, before), rng), False
    for factor in (1.2, 1.5, 2.0, 4.0):
        scale = np.where(is_after, factor, 1.0)
        yield f"numbers, RMSE x {factor:g}", (rng.standard_normal((STREAMS, ROUNDS)) * scale) ** 2, True


# -- verdicts ----------------------------------------------------------------------------------------------------------


def bands(D: F64, means: F64 | float) -> tuple[NDArray[np.bool_], I64]:
    """Is the band right at all times, and rounds until it is above 0 (0: never); differences of shape (streams, rounds)."""
    n = np.arange(1, D.shape[1] + 1)
    right, until = np.zeros(len(D), dtype=bool), np.zeros(len(D), dtype=np.int64)
    truth = np.broadcast_to(np.cumsum(np.broadcast_to(means, D.shape), axis=1), D.shape)
    for start in range(0, len(D), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        total = np.cumsum(D[part], axis=1)
        guess = np.concatenate((np.zeros((len(total), 1)), total[:, :-1] / n[:-1]), axis=1)
        width = boundaries(np.cumsum((D[part] - guess) ** 2, axis=1), (1.0 - LEVEL) / 4.0, 2.0)
        right[part] = (np.abs(total - truth[part]) <= width).all(axis=1)
        above = total > width
        until[part] = np.where(above.any(axis=1), above.argmax(axis=1) + 1, 0)
    return right, until


def class_differences(y: F64, p: F64 | float, wrong: F64, q: float) -> list[tuple[F64, F64]]:
    """Differences against majority and last label, and their conditional means; truths are 1 with p, own mistakes have q."""
    N, T = y.shape
    p = np.broadcast_to(p, T)
    t, ones = np.arange(T), np.concatenate((np.zeros((N, 1)), np.cumsum(y, axis=1)[:, :-1]), axis=1)
    majority = (2.0 * ones > t).astype(float)
    last = np.concatenate((np.zeros((N, 1)), y[:, :-1]), axis=1)
    for i in range(CHECKED):
        verdict = Verdict(is_of_numbers=False)
        verdict.run(wrong[i], PlainClasses.of(2).run(y[i]).values, y[i])
        assert verdict.against_first.total == ((majority[i] != y[i]) - wrong[i]).sum()
        assert verdict.against_second.total == ((last[i] != y[i]) - wrong[i]).sum()
    return [((said != y) - wrong, np.where(said == 1.0, 1.0 - p, p) - q) for said in (majority, last)]


def number_differences(y: F64, own: Callable[[F64], F64]) -> list[F64]:
    """Differences of cut squared errors; `own` makes the forecasts of the session from those of each trivial forecaster."""
    T = y.shape[1]
    before = np.concatenate((np.zeros((len(y), 1)), y[:, :-1]), axis=1)
    found = []
    for j, said in enumerate((np.cumsum(before, axis=1) / np.maximum(np.arange(T), 1), before)):
        plain, mine = (said - y) ** 2, (own(said) - y) ** 2
        c, D = np.zeros(len(y)), np.zeros(y.shape)
        for i in range(T):
            if i >= UNCOUNTED_BY_VERDICT:
                scale = TIMES_OF_VERDICT * c
                D[:, i] = np.minimum(plain[:, i] / scale, 1.0) - np.minimum(mine[:, i] / scale, 1.0)
            c += (plain[:, i] - c) / min(i + 1, MEMORY)
        for i in range(CHECKED):
            verdict = Verdict(is_of_numbers=True)
            verdict.run(mine[i], PlainNumbers().run(y[i]).values, y[i])
            assert abs((verdict.against_first, verdict.against_second)[j].total - D[i].sum()) < 1e-6
        found.append(D[:, UNCOUNTED_BY_VERDICT:])
    return found


def covered(rng: np.random.Generator) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Streams where the conditional means are known: are both bands right, at all times?"""
    t = np.arange(ROUNDS)
    walks = 0.5 + 0.4 * np.sin(t / 300.0)
    for name, p, q in (
        ("0.4, own 0.4", 0.4, 0.4),
        ("0.4, own 0.1", 0.4, 0.1),
        ("0.02, own 0.02", 0.02, 0.02),
        ("swings", walks, 0.3),
    ):
        differences = class_differences(mistakes(p, rng), p, mistakes(q, rng), q)
        yield f"classes, {name}", np.logical_and(*(bands(D, means)[0] for D, means in differences))
    # The truths are symmetric about 0, so that the opposite forecast is as good.
    for name, y in (
        ("normal", rng.standard_normal((STREAMS, ROUNDS))),
        ("Student, 3 degrees", rng.standard_t(3, (STREAMS, ROUNDS))),
        ("Cauchy", rng.standard_cauchy((STREAMS, ROUNDS))),
    ):
        yield f"numbers, {name}", np.logical_and(*(bands(D, 0.0)[0] for D in number_differences(y, np.negative)))


def decided(rng: np.random.Generator) -> Iterator[tuple[str, I64]]:
    """Rounds until a session is called better than the majority, or the mean."""
    for q in (0.38, 0.35, 0.3, 0.2, 0.1):
        [(D, means), _] = class_differences(mistakes(0.4, rng), 0.4, mistakes(q, rng), q)
        yield f"mistakes {q:g} of 0.4", bands(D, means)[1]
    y = rng.standard_normal((STREAMS, ROUNDS))
    for ratio in (0.95, 0.9, 0.7, 0.5):
        # The session knows a part of what is to come, so that its error has this ratio to that of the mean.
        [D, _] = number_differences(y, lambda said, ratio=ratio: said + (1.0 - ratio) * (y - said))
        until = bands(D, 0.0)[1]
        yield f"RMSE {ratio:g} of 1", np.where(until, until + UNCOUNTED_BY_VERDICT, 0)


# -- what is printed ---------------------------------------------------------------------------------------------------


def shown(rounds: I64) -> str:
    """Median and 90th percentile of rounds, those that never come last."""
    late = np.where(rounds > 0, rounds, np.iinfo(np.int64).max)
    ends = (np.quantile(late, level, method="inverted_cdf") for level in (0.5, 0.9))
    return "".join(f"{end:>8.0f}" if end <= ROUNDS else f"{'-':>8}" for end in ends)


def draw(delays: dict[str, I64], out: Path) -> None:
    """The share of streams with an alarm, by the rounds since the error has risen."""
    mpl.rcParams["svg.hashsalt"] = "okl"
    figure = Figure(figsize=(7.0, 3.6), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    for name, rounds in delays.items():
        found = np.sort(rounds[rounds > 0])
        shares = np.arange(1, len(found) + 1) / STREAMS
        # To the end of the stream, where those are that were missed.
        axes.step(np.append(found, ROUNDS - CHANGE), np.append(shares, len(found) / STREAMS), where="post", label=name)
    axes.set(xscale="log", xlabel="rounds since the error has risen", ylabel="share with an alarm", ylim=(0.0, 1.02))
    axes.legend(fontsize=7, ncols=2)
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / "monitoring.svg", metadata={"Date": None})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.monitoring", description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for the figure")
    out: Path | None = parser.parse_args(arguments).out
    rng, is_broken = np.random.default_rng(0), False

    print(f"{'no rise':<36}{'alarms %':>9}{'promised':>10}   {STREAMS} streams of {ROUNDS} rounds")
    for name, errors, is_of_numbers, is_promised in quiet_streams(rng):
        alarms = int((first_alarms(errors, is_of_numbers) > 0).sum())
        is_crossed = is_promised and alarms > binom.ppf(CHANCE, STREAMS, ALPHA)
        is_broken |= is_crossed
        promised = f"{100.0 * ALPHA:.1f}" if is_promised else "nothing"
        print(f"{name:<36}{100.0 * alarms / STREAMS:>9.1f}{promised:>10}{'  BROKEN' if is_crossed else ''}", flush=True)

    print(f"\n{'rise after round ' + str(CHANGE):<36}{'median':>8}{'90 %':>8}{'missed %':>10}{'before %':>10}")
    delays: dict[str, I64] = {}
    for name, errors, is_of_numbers in risen_streams(rng):
        alarms = first_alarms(errors, is_of_numbers)
        is_early = (alarms > 0) & (alarms <= CHANGE)
        delays[name] = np.where(alarms > CHANGE, alarms - CHANGE, 0)
        missed, early = 100.0 * (alarms == 0).mean(), 100.0 * is_early.mean()
        print(f"{name:<36}{shown(delays[name][~is_early])}{missed:>10.1f}{early:>10.1f}", flush=True)

    print(f"\n{'both bands, at all times':<36}{'right %':>8}{'promised':>10}")
    for name, right in covered(rng):
        is_crossed = int((~right).sum()) > binom.ppf(CHANCE, STREAMS, 1.0 - LEVEL)
        is_broken |= is_crossed
        print(
            f"{name:<36}{100.0 * right.mean():>8.1f}{100.0 * LEVEL:>10.1f}{'  BROKEN' if is_crossed else ''}",
            flush=True,
        )

    print(f"\n{'rounds until better':<36}{'median':>8}{'90 %':>8}{'never %':>10}")
    for name, rounds in decided(rng):
        print(f"{name:<36}{shown(rounds)}{100.0 * (rounds == 0).mean():>10.1f}", flush=True)
    if out is not None:
        draw(delays, out)
    return int(is_broken)


if __name__ == "__main__":
    raise SystemExit(main())
