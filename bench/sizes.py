"""The cost of a round against each size: `python -m bench.sizes [SIZE ...] [--turns N] [--figure FILE.svg]`.

    dim        inputs, for learners with BUDGET points
    budget     points or frequencies, with INPUTS inputs
    classes    of one-vs-rest and softmax-aioli; 1 is the one learner of two labels that they are made of
    sessions   one worker, one client that plays a round of each session in turn
    workers    eight clients, each on a session of its own, whose truth goes to another worker than the question

A learner plays FILLED rounds of MAGIC at each size, in cosines of random directions unless there are classes. The kernel
is so narrow that its dictionary is full then. Its `update` is timed as by `bench.growth`. The service's rounds are those of
`bench.http`, on Redis: all sizes are served at the same time and take turns.

The column of the smallest size has the cost, the others have multiples of it. The exponent is that of the larger half of the
sizes, with its standard error. There is no threshold.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from threadpoolctl import threadpool_limits

from bench.frontier_figures import COLOURS
from bench.growth import fitted, in_turns
from bench.http import OURS, Contestant, Leg, p50_p99, take_turns
from bench.http_client import HOST, redis_server
from bench.multiclass import rows_of
from bench.papers.kons_figures import STYLE, Line, finish, panel_grid, save
from bench.papers.markdown import table
from bench.scenarios import SCENARIOS
from bench.streams import Stream, magic_features
from okl_core import create

Spec = Mapping[str, Any]

SIZES: Mapping[str, Sequence[int]] = {
    "dim": (8, 16, 32, 64, 128, 256, 512),
    "budget": (16, 32, 64, 128, 256, 512, 1024),
    "classes": (1, 2, 5, 10, 20),
    "sessions": (1, 10, 100, 1_000, 10_000),
    "workers": (1, 2, 3, 4),
}
FEWEST = 3
"""Sizes of a fit, and those of `--quick`."""
INPUTS, BUDGET = 16, 200
FILLED, TURNS, ROUNDS = 4_000, 20, 4_000
"""Rounds before those that are timed, turns of a learner, and rounds of the service."""

NARROW = 0.1
"""Sigma, over the root of the number of inputs: nearly every row is new to the dictionary."""

CAPS = {
    "pomdr-magic": "budget",
    "nystrom-aioli-magic": "budget",
    "nystrom-ridge-magic": "budget",
    "pros-n-kons-magic": "budget",
    "kernel-ogd-magic": "budget",
    "fogd-magic": "frequencies",
}
"""What limits the learners of these scenarios."""

AIOLI: Spec = {"kind": "aioli", "config": {}}
MICROSECONDS = "µs"


class Curve(NamedTuple):
    name: str
    unit: str
    values: list[float]
    """One a size."""

    @property
    def ratios(self) -> list[float]:
        return [value / self.values[0] for value in self.values]


def gaussian(d: int) -> Spec:
    return {"kind": "gaussian", "sigma": NARROW * math.sqrt(d)}


def on_budget(d: int, B: int) -> dict[str, Spec]:
    """The learners with so many points; `pomdr` with half of them in its first phase."""
    specs = {}
    for scenario in SCENARIOS:
        if scenario.id in CAPS:
            config = {**scenario.config, "kernel": gaussian(d), CAPS[scenario.id]: B}
            if scenario.kind == "pomdr":
                config["pomd_budget"] = B // 2
            specs[scenario.kind] = {"kind": scenario.kind, "config": config}
    return specs


def of_dim(d: int) -> tuple[Stream, dict[str, Spec]]:
    return magic_features(None, d), {**on_budget(d, BUDGET), "aioli": AIOLI}


def of_budget(B: int) -> tuple[Stream, dict[str, Spec]]:
    return magic_features(None, INPUTS), on_budget(INPUTS, B)


def of_classes(K: int) -> tuple[Stream, dict[str, Spec]]:
    stream = rows_of(K, FILLED)
    nystrom: Spec = {"kind": "nystrom-aioli", "config": {"kernel": gaussian(stream[0].shape[1]), "budget": BUDGET}}
    rest = {"one-vs-rest of aioli": AIOLI, "one-vs-rest of nystrom-aioli": nystrom}
    if K == 1:
        return stream, {**rest, "softmax-aioli": AIOLI}
    found = {name: {"kind": "one-vs-rest", "config": {"classes": K, "member": one}} for name, one in rest.items()}
    return stream, {**found, "softmax-aioli": {"kind": "softmax-aioli", "config": {"classes": K}}}


LEARNERS: Mapping[str, Callable[[int], tuple[Stream, dict[str, Spec]]]] = {
    "dim": of_dim,
    "budget": of_budget,
    "classes": of_classes,
}


def of_learners(what: str, sizes: Sequence[int], filled: int, turns: int) -> list[Curve]:
    """Time and bytes of each learner."""
    made = [LEARNERS[what](size) for size in sizes]
    streams = [stream for stream, _ in made]
    curves = []
    for name in made[0][1]:
        kept = []
        for (X, y), specs in made:
            kept.append(learner := create(specs[name], X.shape[1]))
            learner.run(X[:filled], y[:filled])
        state = [float(learner.nbytes) for learner in kept]
        curves += [Curve(name, MICROSECONDS, in_turns(kept, streams, turns)), Curve(name, "bytes", state)]
    return curves


def of_service(what: str, sizes: Sequence[int], rounds: int) -> list[Curve]:
    """CPU time of the workers a round, and the latency of a request."""
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server())
        runners = []
        for database, size in enumerate(sizes):
            store = {"OKL_STORE": f"redis://{HOST}:{redis.port}/{database}"}
            leg = Leg(str(size), 1, size, 1) if what == "sessions" else Leg(str(size), 8, 8, size)
            # A learner whose cost does not depend on the rounds that a session has played.
            runners.append((Contestant(leg.name, OURS, store, learner=AIOLI), leg))
        take_turns(stack, runners, rounds)
    found = [runner for runner, _ in runners]
    latencies = [[one for several in runner.latencies.values() for one in several] for runner in found]
    return [
        Curve("CPU of a round", MICROSECONDS, [1e6 * runner.cpu_s / runner.rounds for runner in found]),
        Curve("median request", MICROSECONDS, [1e6 * p50_p99(each)[0] for each in latencies]),
    ]


def exponent(sizes: Sequence[int], values: Sequence[float]) -> tuple[float, float]:
    """Of the larger half of the sizes, with its standard error."""
    half = max(FEWEST, (len(sizes) + 1) // 2)
    return fitted(sizes[-half:], values[-half:])


def lines(what: str, sizes: Sequence[int], curves: Sequence[Curve]) -> list[str]:
    """The table of one size."""
    rows = []
    for curve in curves:
        slope, error = exponent(sizes, curve.values)
        ratios = [f"{ratio:.2f}" for ratio in curve.ratios[1:]]
        rows.append((curve.name, f"{curve.values[0]:,.0f} {curve.unit}", *ratios, f"{slope:.2f} ± {error:.2f}"))
    return table((what, *(f"{size:,}" for size in sizes), "exponent"), rows)


def draw(path: Path, found: Mapping[str, tuple[Sequence[int], Sequence[Curve]]]) -> None:
    """A panel for each size: the multiples of the times."""
    with mpl.rc_context(STYLE):
        rows = math.ceil(len(found) / 2)
        figure, panels = panel_grid(rows, 2, height=2.4 * rows)
        for ax in panels.flat[len(found) :]:
            ax.set_axis_off()
        for ax, (what, (sizes, curves)) in zip(panels.flat, found.items(), strict=False):
            ends = []
            for curve, colour in zip([curve for curve in curves if curve.unit == MICROSECONDS], COLOURS, strict=False):
                ax.plot(sizes, curve.ratios, color=colour)
                ends.append((curve.ratios[-1], Line(curve.name, curve.name, colour)))
            finish(ax, ends, f"time, over that of the smallest: {what}")
            ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
        save(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.sizes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("size", nargs="*", choices=(*SIZES, []), help="default: all")
    parser.add_argument("--turns", type=int, default=TURNS, help="of a learner")
    parser.add_argument("--quick", action="store_true", help="a few rounds of the smallest sizes")
    parser.add_argument("--figure", type=Path, help="draw the multiples of the times, as SVG")
    options = parser.parse_args(arguments)
    found = {}
    with threadpool_limits(1):
        for what in options.size or SIZES:
            sizes = SIZES[what][:FEWEST] if options.quick else SIZES[what]
            filled, turns, rounds = (100, 1, 100) if options.quick else (FILLED, options.turns, ROUNDS)
            is_core = what in LEARNERS
            curves = of_learners(what, sizes, filled, turns) if is_core else of_service(what, sizes, rounds)
            found[what] = sizes, curves
            print("\n".join([*lines(what, sizes, curves), ""]), flush=True)
    if options.figure:
        draw(options.figure, found)


if __name__ == "__main__":
    main()
