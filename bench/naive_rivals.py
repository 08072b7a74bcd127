"""River's usual choices on the sets of `bench.naive_sets`: `python -m bench.naive_rivals FILE`, `--help` for more.

Each is what a user of River writes without tuning: numbers imputed by their mean and standardised, strings one-hot (but
trees and forests of classes take strings as they are), a date as its day, month and hour, and the method with its
defaults. A round is predicted, then learned; the error is over all rounds, the first included: for labels the share of
mistakes (no answer is one), for numbers the root of the mean squared error (no answer is 0).

FILE gets {set: {method: {error, se, seconds, rounds}}}, written after every method; what it has already is not run again.
`seconds` is CPU time of everything, `se` the standard error of `error`; both errors are null where the method left the
finite numbers.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypedDict

import numpy as np
from river import (
    compose,
    forest,
    linear_model,
    multiclass,
    neighbors,
    preprocessing,
    stats,
    time_series,
    tree,
    utils,
)
from threadpoolctl import threadpool_limits

from bench.naive_sets import NaiveSet, loaders

WIDE, VERY_WIDE = 200, 500
CUT = {WIDE: 5_000, VERY_WIDE: 1_000}
"""Rounds that slow methods (neighbours, trees, forests) play of sets with more columns than this."""


class Result(TypedDict):
    error: float | None
    se: float | None
    seconds: float
    rounds: int


class Rival(Protocol):
    """A method that answers None where it knows nothing yet."""

    def predict(self, x: dict[str, Any]) -> Any: ...
    def learn(self, x: dict[str, Any], y: Any) -> None: ...


class Majority:
    def __init__(self) -> None:
        self.counts: Counter[Any] = Counter()

    def predict(self, x: dict[str, Any]) -> Any:
        return self.counts.most_common(1)[0][0] if self.counts else None

    def learn(self, x: dict[str, Any], y: Any) -> None:
        self.counts[y] += 1


class Mean:
    def __init__(self) -> None:
        self.sum, self.count = 0.0, 0

    def predict(self, x: dict[str, Any]) -> float | None:
        return self.sum / self.count if self.count else None

    def learn(self, x: dict[str, Any], y: float) -> None:
        self.sum, self.count = self.sum + y, self.count + 1


class Last:
    def __init__(self) -> None:
        self.y: Any = None

    def predict(self, x: dict[str, Any]) -> Any:
        return self.y

    def learn(self, x: dict[str, Any], y: Any) -> None:
        self.y = y


class Piped:
    """A pipeline of River."""

    def __init__(self, pipeline: Any) -> None:
        self.pipeline = pipeline

    def predict(self, x: dict[str, Any]) -> Any:
        return self.pipeline.predict_one(x)

    def learn(self, x: dict[str, Any], y: Any) -> None:
        self.pipeline.learn_one(x, y)


class OfTwo(Piped):
    """A pipeline that takes labels as false and true."""

    def __init__(self, pipeline: Any, labels: Sequence[Any]) -> None:
        super().__init__(pipeline)
        self.labels = labels

    def predict(self, x: dict[str, Any]) -> Any:
        return self.labels[bool(super().predict(x))]

    def learn(self, x: dict[str, Any], y: Any) -> None:
        super().learn(x, y == self.labels[1])


class Series:
    """SNARIMAX, of which the next value is asked; inputs go to its regressor."""

    def __init__(self, features: Any, series: Any) -> None:
        self.features, self.series = features, series

    def predict(self, x: dict[str, Any]) -> float:
        return self.series.forecast(horizon=1, xs=[self.features.transform_one(x)])[0]

    def learn(self, x: dict[str, Any], y: float) -> None:
        self.features.learn_one(x)
        self.series.learn_one(y, self.features.transform_one(x))


class Columns(NamedTuple):
    """Names of the columns of numbers, of strings, and of the numbers of which some are null."""

    numbers: list[str]
    strings: list[str]
    gaps: list[str]


def records(played: NaiveSet) -> list[dict[str, Any]]:
    """The rows as River wants them: keys are words, a date is numbers and a word."""
    found = []
    for row in played.rows:
        named = row if isinstance(row, dict) else {f"x{i}": value for i, value in enumerate(row)}
        record: dict[str, Any] = {}
        for key, value in named.items():
            if isinstance(value, str) and (date := _date(value)) is not None:
                record |= {
                    f"{key}_day": date.toordinal(),
                    f"{key}_month": date.strftime("%b"),
                    f"{key}_hour": date.hour,
                }
            else:
                record[key] = value
        found.append(record)
    return found


def _date(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def columns(rows: Sequence[dict[str, Any]]) -> Columns:
    strings = {key for row in rows for key, value in row.items() if isinstance(value, str)}
    nulls = {key for row in rows for key, value in row.items() if value is None}
    numbers = [key for key in rows[0] if key not in strings]
    return Columns(numbers, [key for key in rows[0] if key in strings], [key for key in numbers if key in nulls])


def features(found: Columns, is_tree: bool = False) -> Any:
    prepared = compose.Select(*found.numbers)
    if found.gaps:
        prepared |= preprocessing.StatImputer(*((key, stats.Mean()) for key in found.gaps))
    prepared |= preprocessing.StandardScaler()
    if found.strings:
        missing = preprocessing.StatImputer(*((key, "missing") for key in found.strings))
        words = compose.Select(*found.strings) | missing
        # Zeros for thousands of tail numbers would cost the methods all their time and change no sum or distance.
        prepared += words if is_tree else words | preprocessing.OneHotEncoder(drop_zeros=True)
    return prepared


WINDOW = 1_000
"""Rounds among which neighbours are sought."""


def neighbours(kind: type[Any]) -> Any:
    # The exact search is faster than River's default, a graph of the same window, and not worse.
    return kind(engine=neighbors.LazySearch(WINDOW, dist_func=utils.math._euclidean_distance))


def for_labels(played: NaiveSet, found: Columns) -> dict[str, Callable[[], Rival]]:
    def linear() -> Rival:
        if len(played.labels) == 2:
            return OfTwo(features(found) | linear_model.LogisticRegression(), played.labels)
        return Piped(features(found) | multiclass.OneVsRestClassifier(linear_model.LogisticRegression()))

    return {
        "majority": Majority,
        "last label": Last,
        "LogisticRegression": linear,
        "HoeffdingTree": lambda: Piped(features(found, True) | tree.HoeffdingTreeClassifier()),
        "HoeffdingAdaptiveTree": lambda: Piped(features(found, True) | tree.HoeffdingAdaptiveTreeClassifier(seed=0)),
        "KNN": lambda: Piped(features(found) | neighbours(neighbors.KNNClassifier)),
        "ARF": lambda: Piped(features(found, True) | forest.ARFClassifier(n_models=10, seed=0)),
    }


def for_numbers(played: NaiveSet, found: Columns) -> dict[str, Callable[[], Rival]]:
    methods: dict[str, Callable[[], Rival]] = {
        "mean": Mean,
        "last truth": Last,
        "LinearRegression": lambda: Piped(features(found) | linear_model.LinearRegression()),
        "LinearRegression, truths scaled": lambda: Piped(
            features(found) | preprocessing.TargetStandardScaler(regressor=linear_model.LinearRegression())
        ),
        "HoeffdingTree": lambda: Piped(features(found) | tree.HoeffdingTreeRegressor()),
        "HoeffdingAdaptiveTree": lambda: Piped(features(found) | tree.HoeffdingAdaptiveTreeRegressor(seed=0)),
        "KNN": lambda: Piped(features(found) | neighbours(neighbors.KNNRegressor)),
        "ARF": lambda: Piped(features(found) | forest.ARFRegressor(n_models=10, seed=0)),
    }
    if played.is_series:
        m = played.season
        # The seasonal one is that of River's own documentation.
        methods["SNARIMAX(1,1,1)"] = lambda: Series(features(found), time_series.SNARIMAX(p=1, d=1, q=1))
        methods["SNARIMAX, seasonal"] = lambda: Series(
            features(found), time_series.SNARIMAX(p=1, d=0, q=0, m=m, sp=3, sq=6)
        )
        methods["SNARIMAX, seasonal differences"] = lambda: Series(
            features(found), time_series.SNARIMAX(p=m, d=1, q=m, m=m, sd=1)
        )
    return methods


FAST = {"majority", "mean", "last label", "last truth"}


def rivals(played: NaiveSet, rows: Sequence[dict[str, Any]]) -> dict[str, Callable[[], Rival]]:
    """Makers of the rivals by name, for the rounds of one set as `records` has them."""
    found = columns(rows)
    return for_labels(played, found) if played.kind == "labels" else for_numbers(played, found)


def rounds_of(played: NaiveSet, width: int, method: str) -> int:
    """How many rounds a method plays of a set."""
    is_slow = method not in FAST and not method.startswith(("L", "SNARIMAX"))
    cuts = [count for columns, count in CUT.items() if width > columns and is_slow]
    return min([len(played.rows), *cuts])


def mistakes(kind: str, forecasts: Sequence[Any], truths: Sequence[Any]) -> np.ndarray:
    """What each round cost, shape (n,): 1 for a wrong label, the squared error of a number."""
    if kind == "labels":
        return np.array(
            [float(forecast is None or forecast != y) for forecast, y in zip(forecasts, truths, strict=True)]
        )
    known = np.array([0.0 if forecast is None else float(forecast) for forecast in forecasts])
    with np.errstate(over="ignore", invalid="ignore"):
        return (known - np.array(truths, dtype=float)) ** 2


def error_and_se(kind: str, costs: np.ndarray) -> tuple[float | None, float | None]:
    """The error over all rounds, and its standard error as if rounds were independent; of a root by the delta method."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, se = float(costs.mean()), float(costs.std()) / math.sqrt(len(costs))
    if not math.isfinite(mean) or not math.isfinite(se):
        return None, None
    if kind == "labels":
        return mean, se
    return math.sqrt(mean), se / (2.0 * math.sqrt(mean)) if mean else 0.0


def play(played: NaiveSet, rows: Sequence[dict[str, Any]], make: Callable[[], Rival], rounds: int) -> Result:
    """Plays the first rounds of a set: predict, learn, the next one."""
    start = time.process_time()
    rival, forecasts = make(), []
    truths = played.truths[:rounds]
    for x, y in zip(rows[:rounds], truths, strict=True):
        forecasts.append(rival.predict(x))
        rival.learn(x, y)
    seconds = time.process_time() - start
    error, se = error_and_se(played.kind, mistakes(played.kind, forecasts, truths))
    return Result(error=error, se=se, seconds=round(seconds, 3), rounds=rounds)


class Results:
    """{set: {method: Result}} of a file, or of this process alone; the file is whole at any time."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._known: dict[str, dict[str, Result]] = {}
        if file is not None and file.exists():
            self._known = json.loads(file.read_text())

    def of(self, played: NaiveSet) -> dict[str, Result]:
        """The results of all rivals on the rounds of one set. What is known is not run again."""
        results = self._known.setdefault(played.name, {})
        rows = records(played)
        for method, make in rivals(played, rows).items():
            if method in results:
                continue
            try:
                results[method] = play(played, rows, make, rounds_of(played, len(rows[0]), method))
            except (OverflowError, ValueError, ZeroDivisionError) as error:
                # A linear method that diverged: infinite weights are an answer of the method, not of the bench.
                print(f"{played.name}: {method} failed: {error!r}", file=sys.stderr)
                results[method] = Result(error=None, se=None, seconds=0.0, rounds=0)
            self._write()
        return results

    def _write(self) -> None:
        if self._file is None:
            return
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(self._known, indent=1))
        part.replace(self._file)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--data", type=Path, help="a folder of .npz files, played too")
    parser.add_argument("--sets", nargs="*", help="only these")
    options = parser.parse_args(arguments)
    results = Results(options.file)
    with threadpool_limits(1):
        for name, load in loaders(options.data).items():
            if not options.sets or name in options.sets:
                for method, result in results.of(load().played()).items():
                    print(f"{name:<18}{method:<34}{result}", flush=True)


if __name__ == "__main__":
    main()
