"""Attempts to break the theorems of docs/theorems.md and docs/late-truths.md: `python -m bench.theorems`.

And what theorem 2 gains.

Of each theorem half the streams are made by Hypothesis, which is told the room of each and looks for less: inputs that are
all over a square, repeat, or nearly do; truths that are numbers, signs, or the opposite of what the learner forecasts. The
other half are the steps of a search that starts at those with the least room and follows the gradient of the room downhill,
estimated from pairs of streams [spall1992]. The *room* of a stream is the right side of the theorem minus its left side, as a
share of the right side: below 0 the theorem is false. The best function in hindsight comes with a certificate
(`diagnostics.best_in_hindsight`); projections on a dictionary are solved densely, from its points alone. Exits with 1 if a
theorem is broken.

Theorem 11 is about scores alone. Those of its streams are chosen by an adversary who knows the thresholds, and the search
changes what he does in some rounds in a row, or how late their truths are, and keeps what leaves no more room.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from bench.covered import PLAYED, Scores, changed, missed_at_least, missed_at_most, scores
from bench.sides import LATE_TRUTHS, ROUNDS, THEOREMS, Sides, Stream
from bench.streams import magic_stream
from okl_core import create

ROUNDING = 1e-7
"""The room that the solver of the comparator may miss."""
STEPS = 40
"""Of one search."""
GAIN_ROUNDS = 6000
UNCHECKED = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.large_base_example,
    HealthCheck.filter_too_much,
)
"""Streams are long, and some are hard to make."""
S = TypeVar("S")

POINTS = st.tuples(st.floats(-1.0, 2.0), st.floats(-1.0, 2.0))
NEAR = st.sampled_from([0.0, 1e-9, 1e-4, 0.05])
"""How far a repeated input is from the first."""


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Inputs of a few places, or each of its own; truths that are numbers, signs, or an adversary's in some rounds or all."""
    places = draw(st.lists(POINTS, min_size=1, max_size=ROUNDS))
    offsets = draw(st.lists(NEAR, min_size=ROUNDS, max_size=ROUNDS))
    order = draw(st.lists(st.integers(0, len(places) - 1), min_size=ROUNDS, max_size=ROUNDS))
    X = np.array([places[i] for i in order]) + np.array(offsets)[:, None]
    truth = draw(st.sampled_from([st.floats(-1.0, 1.0), st.sampled_from([-1.0, 1.0]), st.just(math.nan)]))
    truth = truth | st.just(math.nan) if draw(st.booleans()) else truth
    y = draw(st.lists(truth, min_size=ROUNDS, max_size=ROUNDS))
    return Stream(X, np.array(y), draw(st.integers(0, 999)))


def descend(sides: Callable[[Stream], Sides], start: Stream) -> float:
    """The least room on the way of STEPS steps, two streams each, against the estimated gradient of the room."""
    rng, least = np.random.default_rng(start.seed), math.inf
    here = start
    for step in range(STEPS):
        width = 0.1 / (1.0 + step) ** 0.2
        dX, dy = rng.choice([-1.0, 1.0], size=start.X.shape), rng.choice([-1.0, 1.0], size=start.y.shape)
        there, back = (
            Stream(here.X + sign * width * dX, np.clip(here.y + sign * width * dy, -1.0, 1.0), start.seed)
            for sign in (1.0, -1.0)
        )
        rooms = sides(there).room, sides(back).room
        least = min(least, *rooms)
        slope = (rooms[0] - rooms[1]) / (2.0 * width)
        here = Stream(here.X - 0.5 * slope * dX, np.clip(here.y - 0.5 * slope * dy, -1.0, 1.0), start.seed)
    return least


def climb(sides: Callable[[Scores], Sides], start: Scores) -> float:
    """The least room of as many streams as `descend` plays, each a change of the one that left the least so far."""
    rng, here, least = np.random.default_rng(start.seed), start, sides(start).room
    for _ in range(2 * STEPS - 1):
        there = changed(here, rng)
        room = sides(there).room
        if room <= least:
            here, least = there, room
    return least


def attack(
    sides: Callable[[S], Sides],
    made: st.SearchStrategy[S],
    search: Callable[[Callable[[S], Sides], S], float],
    count: int,
) -> tuple[float, float]:
    """The least room of streams that Hypothesis made, and of as many that a search made of those with the least."""
    found: list[tuple[float, S]] = []

    @settings(max_examples=count // 2, derandomize=True, deadline=None, database=None, suppress_health_check=UNCHECKED)
    @given(made)
    def play_one(stream: S) -> None:
        room = sides(stream).room
        found.append((room, stream))
        target(-room)

    play_one()
    found.sort(key=lambda pair: pair[0])
    starts = [stream for _, stream in found[: max(1, count // (4 * STEPS))]]
    return found[0][0], min(search(sides, start) for start in starts)


ATTACKS: dict[str, Callable[[int], tuple[float, float]]] = {
    **{name: partial(attack, sides, streams(), descend) for name, sides in THEOREMS.items()},
    "11 coverage, misses at most": partial(attack, missed_at_most, scores(), climb),
    "11 coverage, misses at least": partial(attack, missed_at_least, scores(), climb),
    **{name: partial(attack, sides, streams(), descend) for name, sides in LATE_TRUTHS.items()},
}
"""Of each row of the table: what plays so many streams, and gives the two rooms."""


def gains() -> None:
    """What the weights of theorem 2 gain."""
    X, y = (part[:GAIN_ROUNDS] for part in magic_stream(None))
    labels = np.where(y > 0.0, 1.0, -1.0)
    print("| B | curvature | mistakes, % | loss | bound |\n|---:|---|---:|---:|---:|")
    for norm in (5.0, 10.0, 30.0):
        for curvature in ("paper", "half", "exact"):
            config = {"kernel": {"kind": "gaussian", "sigma": 0.3}, "budget": 150, "comparator_norm": norm}
            learner = create({"kind": "nystrom-aioli", "config": config | {"curvature": curvature}}, X.shape[1])
            played = learner.run(X, labels)
            mistakes = 100.0 * float((played.values * labels <= 0.0).mean())
            bound = learner.describe()["bound"]
            print(f"| {norm:g} | {curvature} | {mistakes:.2f} | {played.losses.mean():.4f} | {bound:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=10_000, help="for each theorem, half of them by Hypothesis")
    asked = parser.parse_args()
    print(f"{asked.streams:,} streams of {ROUNDS} rounds for each theorem, of {PLAYED} for theorem 11\n")
    print("| theorem | least room, by Hypothesis | searched | |\n|---|---|---|---|")
    broken = False
    with threadpool_limits(1):
        for name, attacked in ATTACKS.items():
            rooms = attacked(asked.streams)
            holds = min(rooms) >= -ROUNDING
            broken |= not holds
            made, searched = (f"{max(room, 0.0) if holds else room:.4f}" for room in rooms)
            print(f"| {name} | {made} | {searched} | {'holds' if holds else 'BROKEN'} |", flush=True)
        print(f"\n{GAIN_ROUNDS:,} rounds of MAGIC\n")
        gains()
    raise SystemExit(broken)


if __name__ == "__main__":
    main()
