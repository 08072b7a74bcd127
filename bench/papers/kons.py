"""KONS and its sketches, as in [calandriello2017], beside their yardsticks: python -m bench.papers.kons

One stream of numbers and one of labels, made with a fixed seed or read from .npz files with X and y, whose columns are
scaled to [0, 1], whose rows are put in a fixed random order, and whose real truths are scaled to [-1, 1]. Every learner
plays them with the same kernel, clip and regularization, and is compared with the best function in hindsight of that
class. Writes figures, prints a table a stream, and fails if a regret exceeds its bound, or if the sketch that keeps
three rounds in ten loses more than 1 / 0.3 times what KONS does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from threadpoolctl import threadpool_limits

from bench.papers.kons_figures import draw
from bench.papers.kons_runs import (
    ALPHA,
    GAMMAS,
    KONS,
    ROUNDS,
    Played,
    Result,
    factor_size,
    measure,
    newton_bound,
    tasks,
)
from bench.papers.markdown import table
from okl_core import diagnostics
from okl_core.losses import LOSSES

COLUMNS = [
    "learner",
    "loss",
    "regret",
    "bound",
    "regret / bound",
    "regret / KONS",
    "points",
    "in the factor",
    "first us",
    "last us",
]


def report(result: Result) -> str:
    """The table of a stream, and what of the stream the bounds of KONS depend on."""
    task, best = result.task, result.bests[-1]
    lines = [
        f"## {task.name}: {len(task.y)} rounds, {task.X.shape[1]} inputs, {task.loss} loss",
        "",
        f"Gaussian kernel of sigma {task.kernel.sigma:.3g}, C = {task.clip:g}, alpha = {ALPHA:g}. The best function in "
        f"hindsight has loss {best.loss:.2f} and norm {best.norm:.2f}; its objective is at most {best.gap:.0e} "
        "above the optimum.",
        "",
        *table(COLUMNS, [_row(result, played) for played in result.runs.values()]),
        "",
        *table(["KONS with curvature steps", "regret bound"], _bounds(result)),
    ]
    return "\n".join(lines)


def _row(result: Result, played: Played) -> list[str]:
    best, told = result.bests[-1], played.told[-1]
    regret, bound = played.regret(best), played.bound(best)
    exact = result.runs[KONS].regret(best)
    tenth = max(1, len(played.ends) // 10)
    cells = [
        f"{played.losses.sum():.2f}",
        f"{regret:.2f}",
        "-" if bound is None else f"{bound:.2f}",
        "-" if bound is None else f"{regret / bound:.2f}",
        f"{regret / exact:.2f}" if exact > 0.0 else "-",
        f"{told['dictionary']:.0f}",
        f"{factor_size(played.by.kind, told):.0f}",
        f"{played.round_us[:tenth].mean():.1f}",
        f"{played.round_us[-tenth:].mean():.1f}",
    ]
    return [played.by.name, *cells]


def _bounds(result: Result) -> list[list[str]]:
    """The bounds of KONS, each looser than the one before, and what they are made of."""
    task, best, told = result.task, result.bests[-1], result.runs[KONS].told[-1]
    loss, K = LOSSES[task.loss], task.kernel.gram(task.X)
    sigma, L, T = loss.curvature(task.clip), loss.lipschitz(task.clip), len(task.y)
    a = ALPHA / (sigma * L * L)
    d_eff = diagnostics.effective_dimension(K, a)
    d_onl = diagnostics.online_effective_dimension(K, a)
    log_det = diagnostics.kons_log_det_bound(best.norm, ALPHA, sigma, told["log_det"])
    of_dimension = [
        diagnostics.kons_dimension_bound(best.norm, ALPHA, sigma, L, T, d_eff, as_printed=as_printed)
        for as_printed in (False, True)
    ]
    return [
        ["measured regret", f"{result.runs[KONS].regret(best):.2f}"],
        ["from the rounds played", f"{newton_bound(told, best.norm):.2f}"],
        [f"from log det = {told['log_det']:.2f}", f"{log_det:.2f}"],
        [f"from d_eff = {d_eff:.2f} (d_onl = {d_onl:.2f}) at a = {a:.3g}", f"{of_dimension[0]:.2f}"],
        ["the same as the theorem prints it", f"{of_dimension[1]:.2f}"],
    ]


def broken(result: Result) -> list[str]:
    """What the theory forbids and the stream shows."""
    found = []
    for (name, played), best in ((item, best) for item in result.runs.items() for best in result.bests):
        regret, bound = played.regret(best), played.bound(best)
        # With adaptive steps and the squared loss the two are equal.
        if bound is not None and regret > bound + 1e-6 * (1.0 + abs(bound)):
            found.append(f"{result.task.name}, {name}: regret {regret} > {bound} after {len(best.losses)} rounds")
    best, gamma = result.bests[-1], GAMMAS[-1]
    exact = result.runs[KONS].regret(best)
    sketch = result.runs[f"Sketched-KONS, {gamma:g}"].regret(best)
    if exact > 0.0 and sketch >= exact / gamma:
        found.append(f"{result.task.name}: the sketch of {gamma:g} has regret {sketch}, KONS {exact}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--regression", type=Path, metavar="FILE.npz", help="X and y, real")
    parser.add_argument("--classification", type=Path, metavar="FILE.npz", help="X and y in {-1, 1}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of each stream, {ROUNDS} by default")
    parser.add_argument("--out", type=Path, default=Path("docs/figures"), help="folder of the figures")
    options = parser.parse_args(arguments)
    results = []
    with threadpool_limits(1):
        for task in tasks(options.rounds, options.regression, options.classification):
            results.append(measure(task))
            print(report(results[-1]), end="\n\n", flush=True)
    print(*draw(results, options.out), sep="\n")
    found = [line for result in results for line in broken(result)]
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
