"""The two sides of the theorem of docs/theorems.md on coverage, on streams of scores; adversaries who know the thresholds."""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from bench.sides import Sides
from okl_core.conformal import Conformal, ConformalState

PLAYED = 400
"""Rounds: enough for an excess of 25 M at every lag, and at alpha 1/5 or more for the least one too."""
LATEST = 10
"""Rounds by which a truth is late at most."""
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
RATIOS = (math.inf, 1.0, 2.0, 3.0, 8.0, 50.0)
SMALLEST = 1e-100
"""The first score: from there it doubles some 800 times, without an end of the floats."""
AIMS = ("above", "at", "zero", "jump")


class Move(NamedTuple):
    """A score: just above the threshold that was issued, as large as it, 0, or 2^`power` times the largest score kept.

    Where the threshold is infinite the first two are as the last.
    """

    aim: str
    power: int

    def score(self, issued: float, top: float) -> float:
        if self.aim == "zero":
            return 0.0
        if self.aim == "jump" or math.isinf(issued):
            return min(top * 2.0**self.power, sys.float_info.max)
        return issued if self.aim == "at" else min(math.nextafter(issued, math.inf), sys.float_info.max)


class Scores(NamedTuple):
    """What an adversary does in each round, and how late its truth is; `ratio` is as far as scores go above those kept."""

    level: float
    ratio: float
    moves: tuple[Move, ...]
    delays: tuple[int, ...]
    seed: int
    """Of a search that starts here."""


MOVES = st.builds(Move, st.sampled_from(AIMS), st.integers(-8, 8))


@st.composite
def scores(draw: st.DrawFn) -> Scores:
    """Phases of one move each, or of a few in turn, with truths that are late by a number of rounds or by several."""
    moves, delays = list[Move](), list[int]()
    while len(moves) < PLAYED:
        length = draw(st.sampled_from([1, 3, 10, 30, 100, PLAYED]))
        turns = draw(st.lists(MOVES, min_size=1, max_size=3))
        late = draw(st.lists(st.integers(0, LATEST), min_size=1, max_size=3))
        moves += [turns[t % len(turns)] for t in range(length)]
        delays += [late[t % len(late)] for t in range(length)]
    level, ratio, seed = draw(st.sampled_from(LEVELS)), draw(st.sampled_from(RATIOS)), draw(st.integers(0, 999))
    return Scores(level, ratio, tuple(moves[:PLAYED]), tuple(delays[:PLAYED]), seed)


def changed(stream: Scores, rng: np.random.Generator) -> Scores:
    """With another move, or other delays, in some rounds in a row; at times with another level or ratio."""
    start, length = int(rng.integers(PLAYED)), 2 ** int(rng.integers(10))
    rows = slice(start, min(start + length, PLAYED))
    count = rows.stop - rows.start
    what = rng.choice(["moves", "delays", "level", "ratio"], p=[0.6, 0.3, 0.05, 0.05])
    if what == "level":
        return stream._replace(level=float(rng.choice(LEVELS)))
    if what == "ratio":
        return stream._replace(ratio=float(rng.choice(RATIOS)))
    if what == "delays":
        late = int(rng.integers(LATEST + 1))
        return stream._replace(delays=(*stream.delays[:start], *[late] * count, *stream.delays[rows.stop :]))
    move = Move(str(rng.choice(AIMS)), int(rng.integers(-8, 9)))
    return stream._replace(moves=(*stream.moves[:start], *[move] * count, *stream.moves[rows.stop :]))


class Learned(NamedTuple):
    """After a round: the state's excess and longest lag, and R, how far a score was above the largest kept when its
    forecast was issued."""

    excess: float
    longest_lag: int
    ratio: float


def learned(stream: Scores) -> list[Learned]:
    """After each round, in the order in which they are learned."""
    conformal = Conformal(level=stream.level)
    state, ratio, told = conformal.init(), 0.0, list[Learned]()
    due: list[list[tuple[int, float, float, int]]] = [[] for _ in range(PLAYED + LATEST)]
    for now, arrived in enumerate(due):
        if now < PLAYED:
            issued = conformal.threshold(state), _largest(state), state.rounds
            due[now + stream.delays[now]].append((now, *issued))
        for t, q, top, known in arrived:
            score = min(stream.moves[t].score(q, top if known else SMALLEST), stream.ratio * top if top else math.inf)
            if known and score > 0.0:
                ratio = max(ratio, score / top if top else math.inf)
            conformal.learn(state, score, q, state.rounds - known)
            told.append(Learned(conformal.excess(state), state.longest_lag, ratio))
    return told


def _largest(state: ConformalState) -> float:
    return float(state.scores[: min(state.rounds, len(state.scores))].max(initial=0.0))


def missed_at_most(stream: Scores) -> Sides:
    """The upper half, after the round that leaves the least room."""
    alpha = Conformal(level=stream.level).alpha

    def sides(one: Learned) -> Sides:
        pending = 1.0 + one.longest_lag
        most = min(25.0, 5.0 + 4.0 * math.log2(max(one.ratio / 2.0, 1.0)))
        return Sides(one.excess, most * max(1.0, alpha * pending) + (1.0 - alpha) * pending)

    return min(map(sides, learned(stream)), key=lambda found: found.room)


def missed_at_least(stream: Scores) -> Sides:
    """The lower half, after the round that leaves the least room."""
    alpha = Conformal(level=stream.level).alpha

    def sides(one: Learned) -> Sides:
        pending = 1.0 + one.longest_lag
        least = 5.0 * (1.0 - alpha) / alpha
        return Sides(-one.excess, least * max(1.0, alpha * pending) + alpha * pending)

    return min(map(sides, learned(stream)), key=lambda found: found.room)
