"""The learning curve of each learner, as a picture on its page: `python -m bench.curves [KIND ...]`.

A learner plays the first rounds of the stream of its bench scenario. The picture has its error over the last rounds: the
share of mistakes, or the root mean squared error of numbers. Beside it is the forecaster that it must beat: the most
frequent label so far, or the mean. Nothing but the learner's own state decides what is drawn, and no time is in it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from bench.scenarios import SCENARIOS
from bench.streams import Stream, magic_classes, magic_stream
from okl_core import OnlineLearner, create, learner_kinds
from okl_core.types import F64

FOLDER = Path(__file__).parents[1] / "docs" / "figures" / "learners"
ROUNDS, WINDOW, POINTS = 2000, 200, 100

MORE: Mapping[str, tuple[Mapping[str, Any], Any]] = {
    "nystrom-aar": ({"kernel": {"kind": "gaussian", "sigma": 0.5}, "clip": 1.0}, magic_stream),
    "mean": ({}, magic_stream),
    "majority": ({}, magic_stream),
    "last-label": ({}, magic_stream),
    "frequencies": ({"classes": 4}, magic_classes),
}
"""Config and stream of the kinds that no scenario is of: their rounds cost next to nothing, or what another's do."""

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 52.0, 150.0, 18.0, 40.0
STYLE = """
text { font-family: Helvetica, Arial, sans-serif; font-size: 12px; fill: #75808d; }
.grid { stroke: #75808d; stroke-opacity: 0.25; }
.learner { fill: none; stroke: #4a86d8; stroke-width: 2; }
.trivial { fill: none; stroke: #c58230; stroke-width: 1.5; stroke-dasharray: 5 4; }
"""


def task(kind: str) -> tuple[dict[str, Any], Stream]:
    """The config and the stream of the learner's first scenario."""
    found = next((one for one in SCENARIOS if one.kind == kind), None)
    config, stream = (found.config, found.stream) if found else MORE[kind]
    X, y = stream(None)
    return dict(config), (X[:ROUNDS], y[:ROUNDS])


def errors(learner: OnlineLearner, X: F64, y: F64, *, are_numbers: bool) -> F64:
    """What each round adds to the error: a mistake, or the square of what a number is off by."""
    found = np.empty(len(y))
    for t, (x, truth) in enumerate(zip(X, y.tolist(), strict=True)):
        forecast = learner.predict(x)
        learner.update(x, truth)
        if are_numbers:
            found[t] = (forecast.value - truth) ** 2
        elif forecast.probabilities is not None:
            found[t] = not len(forecast.probabilities) or np.argmax(forecast.probabilities) != truth
        else:
            found[t] = (forecast.value >= 0.0) != (truth > 0.0)
    return found


def curve(added: F64, *, are_numbers: bool) -> tuple[F64, F64]:
    """Rounds, and the error of the last WINDOW rounds at each of them, or of as many as there are."""
    sums = np.concatenate(([0.0], np.cumsum(added)))
    rounds = np.unique(np.linspace(min(20, len(added)), len(added), POINTS).astype(int))
    first = np.maximum(rounds - WINDOW, 0)
    means = (sums[rounds] - sums[first]) / (rounds - first)
    return rounds.astype(float), np.sqrt(means) if are_numbers else means


def picture(kind: str) -> str:
    config, (X, y) = task(kind)
    are_numbers = len(np.unique(y)) > 4
    own = curve(errors(create({"kind": kind, "config": config}, X.shape[1]), X, y, are_numbers=are_numbers),
                are_numbers=are_numbers)  # fmt: skip
    name = "mean" if are_numbers else "majority" if len(np.unique(y)) == 2 else "frequencies"
    lines = [("trivial", name, trivial(name, X, y, are_numbers=are_numbers)), ("learner", kind, own)]
    return drawn(kind, lines if kind != name else lines[1:], are_numbers=are_numbers)


def trivial(name: str, X: F64, y: F64, *, are_numbers: bool) -> tuple[F64, F64]:
    config = {"classes": len(np.unique(y))} if name == "frequencies" else {}
    played = errors(create({"kind": name, "config": config}, X.shape[1]), X, y, are_numbers=are_numbers)
    return curve(played, are_numbers=are_numbers)


def drawn(kind: str, lines: Sequence[tuple[str, str, tuple[F64, F64]]], *, are_numbers: bool) -> str:
    top = max(float(values.max()) for _, _, (_, values) in lines)
    step = nice(top / 4.0)
    top = step * math.ceil(top / step)
    last = float(lines[0][2][0][-1])

    def place(t: float, value: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * t / last
        return x, TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - value / top)

    measure = "RMSE" if are_numbers else "mistakes"
    said = f"Learning curve of {kind}: {measure} over the last {WINDOW} of {last:.0f} rounds"
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">', f"<title>{said}</title>"]
    parts.append(f"<style>{STYLE}</style>")
    for i in range(round(top / step) + 1):
        x, y = place(0.0, i * step)
        label = f"{i * step:.3g}" if are_numbers else f"{100.0 * i * step:.3g} %"
        parts.append(f'<path class="grid" d="M{x:.1f},{y:.1f} H{WIDTH - RIGHT:.1f}"/>')
        parts.append(f'<text x="{x - 6.0:.1f}" y="{y + 4.0:.1f}" text-anchor="end">{label}</text>')
    for t in np.linspace(0.0, last, 5):
        x, y = place(t, 0.0)
        parts.append(f'<text x="{x:.1f}" y="{y + 17.0:.1f}" text-anchor="middle">{t:,.0f}</text>')
    x, y = place(last / 2.0, 0.0)
    parts.append(f'<text x="{x:.1f}" y="{y + 34.0:.1f}" text-anchor="middle">round</text>')
    heights = apart([place(0.0, float(values[-1]))[1] for _, _, (_, values) in lines])
    for (style, name, (rounds, values)), height in zip(lines, heights, strict=True):
        path = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in zip(rounds, values, strict=True))
        parts.append(f'<path class="{style}" d="M{path}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 8.0:.1f}" y="{height + 4.0:.1f}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def nice(step: float) -> float:
    """1, 2 or 5 times a power of ten, the least that is not below `step`."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= 0.999 * step)


def apart(heights: Sequence[float]) -> list[float]:
    """The heights of one or two labels, moved so that they do not touch."""
    if len(heights) < 2 or abs(heights[0] - heights[1]) >= 15.0:
        return list(heights)
    middle, sign = sum(heights) / 2.0, 1.0 if heights[0] > heights[1] else -1.0
    return [middle + sign * 7.5, middle - sign * 7.5]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="these learners alone")
    FOLDER.mkdir(exist_ok=True)
    with threadpool_limits(1):
        for kind in parser.parse_args(arguments).kinds or learner_kinds():
            (FOLDER / f"{kind}.svg").write_text(picture(kind))
            print(FOLDER / f"{kind}.svg")


if __name__ == "__main__":
    main()
