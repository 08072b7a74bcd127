"""AIOLI and its rivals, as in [jezequel2020] and beyond: python -m bench.papers.aioli [--data FILE.npz ...]

First the regret on streams that are hard for proper learners, n from 100 to 100,000, several runs of each sign. Then
probabilities in one pass over MAGIC, which comes with the service, and over sets from .npz files with X and y in {-1, 1}:
a9a and elec2 (by the names of their files) as their rows come, others in random orders; columns are scaled to [0, 1].
Then what a dictionary or random features lose to the exact learner with a kernel, which the paper leaves open.

Prints tables, draws figures, and fails if a regret of AIOLI exceeds its bound. The whole study also fails if AIOLI's
regret on the hard streams reaches 25, if that of FTRL does not grow like a power of n, or if a bar on MAGIC or a9a is
crossed. River's learner plays if the package is there (dependency group `bench`).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from bench.papers import aioli_budget, aioli_hard, aioli_real
from bench.papers.aioli_budget import Study
from bench.papers.aioli_figures import draw
from bench.papers.aioli_hard import AIOLIS, FORECAST_INPUTS, FTRLS, Forecasts, Hard, theorem_1
from bench.papers.aioli_real import CONTESTANTS, RIVER, Score, Scores, Source
from bench.papers.markdown import table
from okl_core.learners.aioli import AioliConfig
from service.demo_data import magic

MAGIC, A9A = "magic", "a9a"


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is played."""

    sizes: Sequence[int] = aioli_hard.SIZES
    runs: int = aioli_hard.RUNS
    rounds: int | None = None
    """Of a set at most."""
    budget_rounds: int = aioli_budget.ROUNDS
    budgets: Sequence[int] = aioli_budget.BUDGETS
    seeds: int = aioli_budget.SEEDS
    has_bars: bool = True


WHOLE = Extent()
QUICK = Extent((50, 200), 2, 150, 80, (5, 10), 1, has_bars=False)

LARGEST_REGRET = 25.0
SMALLEST_SLOPE = 0.35
MAGIC_MISTAKES, MAGIC_CALIBRATION, A9A_MISTAKES = 14.3, 2.0, 15.4
BEATEN = (aioli_real.AIOLI, "fogd", "fogd, c = 30", RIVER)
"""Those on MAGIC whose log-loss that of `nystrom-aioli` must stay below."""

Results = dict[str, dict[str, Score]]
"""By the name of a set and of a contestant."""


# -- tables -----------------------------------------------------------------------------------------------------------


def hard_table(sizes: Sequence[int], hard: Mapping[str, Hard]) -> list[str]:
    rows = []
    for name, found in hard.items():
        slope = found.slope(sizes)
        cells = [*(f"{regret:.1f}" for regret in found.worse), "-" if math.isnan(slope) else f"{slope:.2f}"]
        rows.append([name, *cells, f"{found.largest:.1f}"])
    return table(["regret, the worse sign", *(f"n = {n:,}" for n in sizes), "slope", "largest of a run"], rows)


def bends(found: Sequence[Forecasts]) -> list[str]:
    """How far the forecasts are from linear: that at 1 over that at 1/2, which is 2 for all that are proper."""
    one, half = len(FORECAST_INPUTS) - 1, 3 * (len(FORECAST_INPUTS) - 1) // 4
    return [
        f"After {told.rounds} rounds: "
        + ", ".join(f"{name} {values[one] / values[half]:.2f}" for name, values in told.values.items())
        for told in found
    ]


def set_tables(results: Results) -> list[str]:
    """One table a measure: learners in rows, sets in columns."""
    measures: list[tuple[str, Callable[[Scores], float], str]] = [
        ("log-loss", lambda scores: scores.log_loss, ".4f"),
        ("mistakes, %", lambda scores: scores.mistakes, ".2f"),
        ("calibration error, %", lambda scores: scores.calibration, ".2f"),
        (f"log-loss of the first {aioli_real.BEGINNING:,} rounds", lambda scores: scores.beginning, ".4f"),
        ("microseconds a round", lambda scores: scores.round_us, ".0f"),
    ]
    lines = []
    for title, of, form in measures:
        rows = []
        for by in CONTESTANTS:
            numbers = [of(scored[by.name].scores) if by.name in scored else math.nan for scored in results.values()]
            if not all(map(math.isnan, numbers)):
                rows.append([by.name, *("-" if math.isnan(number) else format(number, form) for number in numbers)])
        lines += [*table([title, *results], rows), ""]
    return lines


def study_lines(study: Study) -> list[str]:
    rows = [
        [
            found.form.name,
            f"{found.size:.0f}",
            f"{found.loss:.1f}",
            f"{100.0 * study.excess(found):+.1f}",
            f"{found.loss - study.best.loss:.1f}",
            f"{found.round_us:.0f}",
        ]
        for found in study.found
    ]
    said = []
    for name in (*aioli_budget.DICTIONARIES, aioli_budget.FOURIER):
        enough = study.enough(name)
        said.append(f"{name}: " + ("never" if enough is None else f"from {enough.size:.0f} on"))
    return [
        f"### {study.task.name}: {len(study.task.y)} rounds",
        "",
        *table(["learner", "points or frequencies", "loss", "above exact, %", "regret", "us a round"], rows),
        "",
        f"Within {100.0 * aioli_budget.NEAR:g}% of the exact learner: {'; '.join(said)}. Regret is against the best "
        f"function of norm {aioli_budget.B:g} at most.",
        "",
    ]


# -- what must hold ---------------------------------------------------------------------------------------------------


def regret_lines(data: Source, scored: Mapping[str, Score]) -> tuple[list[list[str]], list[str]]:
    """A row for each `aioli`, of the pass with the largest regret, beside its bounds; and those that it exceeded."""
    Phi = np.column_stack((data.X, np.ones(len(data.y))))[data.orders[0]]
    y, R = data.y[data.orders[0]], float(np.linalg.norm(Phi, axis=1).max())
    rows, broken = [], []
    for by in (by for by in CONTESTANTS if by.kind == "aioli"):
        config = AioliConfig(**by.config)
        B, regularization = config.comparator_norm, 0.5 * config.alpha
        # All orders are of the same rounds, but where only the first of a set are played.
        passes = scored[by.name].passes if len(y) == len(data.y) else scored[by.name].passes[:1]
        told = max((played.told for played in passes), key=lambda told: told["loss"])
        if told["loss"] <= told["bound"]:
            # No loss is below 0: the bound holds against whatever weights are the best.
            rows.append([f"{data.name}, {by.name}", "-", "-", f"{told['bound']:.1f}", "-", "-"])
            continue
        best = aioli_real.best_weights(Phi, y, B)
        norm = float(np.linalg.norm(best.theta))
        regret = told["loss"] - best.loss
        bounds = [regularization * norm**2 + told["bound"]]
        bounds += [
            theorem_1(norm, regularization, B, R, len(y), Phi.shape[1], curvature)
            for curvature in (config.curvature, "paper")
        ]
        rows.append([f"{data.name}, {by.name}", f"{best.loss:.1f}", f"{regret:.1f}", *(f"{b:.1f}" for b in bounds)])
        if regret > min(bounds):
            broken.append(f"{data.name}, {by.name}: regret {regret} > {min(bounds)}")
    return rows, broken


def crossed(hard: Mapping[str, Hard], results: Results) -> list[str]:
    """The bars that do not hold."""
    found = []
    for name in AIOLIS:
        if (largest := float(hard[name].worse.max())) >= LARGEST_REGRET:
            found.append(f"{name}: regret {largest} >= {LARGEST_REGRET:g}")
    for name in FTRLS:
        if not (slope := hard[name].slope(WHOLE.sizes)) >= SMALLEST_SLOPE:
            found.append(f"{name}: regret grows like n^{slope} only, not n^{SMALLEST_SLOPE:g}")
    return found + crossed_by_sets(results)


def crossed_by_sets(results: Results) -> list[str]:
    found = []
    magic_scores = {name: score.scores for name, score in results[MAGIC].items()}
    ours = magic_scores[aioli_real.NYSTROM]
    for name in BEATEN:
        if name in magic_scores and ours.log_loss >= magic_scores[name].log_loss:
            found.append(f"MAGIC: log-loss {ours.log_loss} >= {magic_scores[name].log_loss} of {name}")
    if ours.mistakes > MAGIC_MISTAKES or ours.calibration >= MAGIC_CALIBRATION:
        found.append(f"MAGIC: {ours.mistakes}% mistakes, calibration error {ours.calibration}%")
    if A9A in results and (mistakes := results[A9A][aioli_real.AIOLI].scores.mistakes) > A9A_MISTAKES:
        found.append(f"a9a: {mistakes}% mistakes > {A9A_MISTAKES:g}%")
    return found


def play_sets(sources: Sequence[Source]) -> Results:
    results: Results = {}
    for data in sources:
        results[data.name] = {}
        for by in CONTESTANTS:
            if aioli_real.can_play(by, data):
                results[data.name][by.name] = aioli_real.score(by, data)
        print(f"{data.name}: {len(data.orders)} x {len(data.orders[0]):,} rounds", file=sys.stderr, flush=True)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="*", default=[], metavar="FILE.npz", help="X and y in {-1, 1}")
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"), help="folder of the figures")
    parser.add_argument("--quick", action="store_true", help="short streams: no bar, but the bounds")
    options = parser.parse_args(arguments)
    extent = QUICK if options.quick else WHOLE
    sources = [aioli_real.source(MAGIC, *magic(), extent.rounds)]
    sources += [aioli_real.from_file(path, extent.rounds) for path in options.data]
    with threadpool_limits(1):
        hard, broken = aioli_hard.measure(extent.sizes, extent.runs)
        forecasts = aioli_hard.forecasts()
        print("## The hard streams", "", *hard_table(extent.sizes, hard), "", sep="\n")
        print("Forecast at 1 over that at 1/2, where linear forecasts have 2.", *bends(forecasts), "", sep="\n")
        results = play_sets(sources)
        print("## Sets", "", f"Even odds have a log-loss of {math.log(2.0):.4f}.", "", sep="\n")
        print(*set_tables(results), sep="\n", flush=True)
        rows = []
        for data in sources:
            told, exceeded = regret_lines(data, results[data.name])
            rows += told
            broken += exceeded
        print(
            *table(["set", "best loss", "regret of aioli", "bound", "of theorem 1", "as published"], rows), "", sep="\n"
        )
        studies = []
        for task in aioli_budget.tasks(extent.budget_rounds):
            studies.append(aioli_budget.measure(task, extent.budgets, extent.seeds))
            print(*study_lines(studies[-1]), sep="\n", flush=True)
            broken += studies[-1].broken()
    print(*draw(options.figures, forecasts, extent.sizes, hard, results[MAGIC], studies), sep="\n")
    if RIVER not in results[MAGIC]:
        print("river is not installed: its rows are left out", file=sys.stderr)
    if extent.has_bars:
        broken += crossed(hard, results)
    for line in broken:
        print(line, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
