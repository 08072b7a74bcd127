"""Do the intervals hold the truth as often as promised? `python -m bench.intervals [FILE.npz ...]`.

Plays thresholds for 90 % behind `mean` and `nystrom-aar` on real streams, with truths at once and late, and behind scores
that are made up to be hard: jumps of the scale by 1,000, and adversaries who see the threshold. Beside them, what a threshold
does that is set from the first 100 scores and stays. Exits with 1 if a bar is crossed.

Files are .npz with X (rounds, inputs) and y; inputs are scaled to [0, 1], truths to [-1, 1]. The streams of River are always
played.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from river import datasets
from threadpoolctl import threadpool_limits

from bench.late import I64, play_late, schedule
from bench.streams import Stream, load, scaled
from okl_core import create, resolve
from okl_core.conformal import Conformal, excess_bound, number_score
from okl_core.types import F64

LEVEL = 0.9
FIRST = 100
"""Scores from which a fixed threshold is set, and inputs from which sigma is."""
WINDOW = 500
SHARE, SHARE_OF_A_WINDOW = 0.01, {0: 0.05, 20: 0.1}
"""How far coverage may be from the level, over all rounds; and in each window, by the rounds that truths are late."""
WIDTH = 1.15
"""Of the best fixed threshold's width, in the mean, on real streams whose truths are there at once."""
LATE, VERY_LATE = 20, 100
"""Rounds. A change is seen 100 rounds late then, a fifth of a window: no bar for these."""
ENDLESS = "above, without end"
"""No score is large enough for it: held to the bound alone."""
HARD_ROUNDS = 6000

Adversary = Callable[[int, float], float]
"""From the round and the threshold to the score."""


@dataclass(frozen=True, slots=True)
class Covered:
    """Scores and thresholds of a stream. `longest`: the longest lag."""

    scores: F64
    issued: F64
    longest: int

    def share(self, issued: F64 | float) -> tuple[float, float, float]:
        """Coverage over all rounds, and in the two windows where it is lowest and highest."""
        held = np.concatenate(([0], np.cumsum(self.scores <= issued)))
        window = min(WINDOW, len(self.scores))
        shares = (held[window:] - held[:-window]) / window
        return held[-1] / len(self.scores), shares.min(), shares.max()

    @property
    def fixed(self) -> float:
        return float(np.quantile(self.scores[:FIRST], LEVEL, method="weibull"))

    @property
    def width(self) -> float:
        """Mean of the finite thresholds, relative to the smallest fixed one that covers as often as promised."""
        best = float(np.quantile(self.scores, LEVEL, method="higher"))
        return float(self.issued[np.isfinite(self.issued)].mean()) / best


def covered(score: Adversary, delays: I64) -> Covered:
    """Thresholds issued with each round's forecast and learned with its truth."""
    conformal = Conformal(level=LEVEL)
    state, times = conformal.init(), schedule(delays)
    scores, issued = np.empty(len(delays)), np.empty(len(delays))
    for t, known in enumerate(times.known.tolist()):
        for row in times.order[state.rounds : known].tolist():
            lag = state.rounds - int(times.known[row])
            conformal.learn(state, scores.item(row), issued.item(row), lag)
        issued[t] = conformal.threshold(state)
        scores[t] = score(t, issued.item(t))
    return Covered(scores, issued, state.longest_lag)


def river_streams() -> Iterator[tuple[str, Stream]]:
    """The regression streams that come with River; a date counts in days."""
    for stream in (datasets.ChickWeights(), datasets.TrumpApproval(), datasets.AirlinePassengers()):
        rows = [([x.toordinal() if hasattr(x, "toordinal") else x for x in row.values()], y) for row, y in stream]
        yield type(stream).__name__, (np.array([x for x, _ in rows], float), np.array([y for _, y in rows], float))


def forecast_scores(kind: str, X: F64, y: F64, delays: I64) -> F64:
    """Scores of a learner's forecasts, whose truths come as late."""
    config = {} if kind == "mean" else {"kernel": {"kind": "gaussian", "sigma": "median"}}
    learner = create(resolve({"kind": kind, "config": config}, X[:FIRST]), dim=X.shape[1])
    values = play_late(learner, X, y, schedule(delays)).issued
    return np.array([number_score(value, truth) for value, truth in zip(values.tolist(), y.tolist(), strict=True)])


def hard_streams() -> Iterator[tuple[str, Adversary]]:
    """Scores for which no fixed threshold is right, or that are chosen when the threshold is known."""
    rng, t = np.random.default_rng(0), np.arange(HARD_ROUNDS)
    draws = np.abs(rng.standard_normal(HARD_ROUNDS))
    drawn = {
        "draws": draws,
        "x 1000 and back": draws * 1000.0 ** (t // 1000 % 2),
        "x 1000 once": draws * 1000.0 ** (t >= HARD_ROUNDS // 2),
        "/ 1000 once": draws / 1000.0 ** (t >= HARD_ROUNDS // 2),
        "x 10 each 1000": draws * 10.0 ** (t // 1000),
        "scale walks": draws * np.exp(np.cumsum(0.05 * rng.standard_normal(HARD_ROUNDS))),
        "scale grows 1%": draws * 1.01**t,
        "heavy tails": np.abs(rng.standard_cauchy(HARD_ROUNDS)),
        "1 and 10 in turn": np.where(t % 2, 10.0, 1.0),
    }
    for name, scores in drawn.items():
        yield name, lambda t, _, scores=scores: scores.item(t)
    yield "just above, to 1", lambda t, q: min(1.001 * q + 1e-6, 1.0) if q < 1.0 else draws.item(t) % 1.0
    yield "1, or 1/2 if held", lambda _, q: 1.0 if q < 1.0 else 0.5
    yield ENDLESS, lambda _, q: 1.5 * q if 0.0 < q < 1e300 else 1.0


def delays_of(name: str, rounds: int) -> I64:
    """None, the same for all, or random with that mean."""
    rng = np.random.default_rng(1)
    kind, _, mean = name.partition(" ")
    if kind == "none":
        return np.zeros(rounds, np.int64)
    return np.full(rounds, int(mean)) if kind == "all" else rng.geometric(1.0 / float(mean), rounds)


HEADER = (
    f"{'stream':<20}{'forecasts':<13}{'late':<12}{'rounds':>7}{'held %':>8}{'windows of 500':>16}{'width':>7}"
    f"{'none':>6}{'fixed %':>9}{'windows of 500':>16}  crossed"
)


def line(stream: str, forecasts: str, late: str, found: Covered) -> bool:
    """Print a line; is a bar crossed?"""
    T = len(found.scores)
    share, low, high = found.share(found.issued)
    fixed, fixed_low, fixed_high = found.share(found.fixed)
    # With one more, the truths that are still to come are counted.
    promised = excess_bound(LEVEL, found.longest + 1) / T
    is_made_up, is_bound_only = not forecasts, T < WINDOW or found.longest >= VERY_LATE or stream == ENDLESS
    of_a_window = SHARE_OF_A_WINDOW[0 if late == "none" else LATE]
    bars = {
        "bound": LEVEL - share > promised,
        "held": not is_bound_only
        and abs(share - LEVEL) > (max(SHARE, promised) if is_made_up and late != "none" else SHARE),
        "windows": not is_bound_only
        and not (is_made_up and late != "none")
        and max(LEVEL - low, high - LEVEL) > of_a_window,
        "width": late == "none" and forecasts == "nystrom-aar" and T >= WINDOW and found.width > WIDTH,
    }
    crossed = [name for name, is_crossed in bars.items() if is_crossed]
    width = f"{found.width:>7.2f}" if found.width < 1e4 else f"{'huge':>7}"
    print(
        f"{stream:<20}{forecasts:<13}{late:<12}{T:>7}{100 * share:>8.1f}{100 * low:>9.1f} -{100 * high:>5.1f}{width}"
        f"{int(np.isinf(found.issued).sum()):>6}{100 * fixed:>9.1f}{100 * fixed_low:>9.1f} -{100 * fixed_high:>5.1f}"
        f"  {', '.join(crossed)}".rstrip(),
        flush=True,
    )
    return bool(crossed)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.intervals", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help=".npz with X and y, numbers")
    files: list[Path] = parser.parse_args(arguments).files
    crossed = False
    print(HEADER)
    with threadpool_limits(1):
        for name, (X, y) in [*((file.stem, load(file)) for file in files), *river_streams()]:
            X, y = scaled(X), 2.0 * scaled(y[:, None])[:, 0] - 1.0
            for kind in ("mean", "nystrom-aar"):
                for late in ("none", f"all {LATE}", f"random {LATE}", f"all {VERY_LATE}"):
                    delays = delays_of(late, len(y))
                    scores = forecast_scores(kind, X, y, delays)
                    found = covered(lambda t, _, scores=scores: scores.item(t), delays)
                    crossed |= line(name, kind, late, found)
        for name, score in hard_streams():
            for late in ("none", f"all {LATE}", f"random {LATE}"):
                found = covered(score, delays_of(late, HARD_ROUNDS))
                crossed |= line(name, "", late, found)
    return int(crossed)


if __name__ == "__main__":
    raise SystemExit(main())
