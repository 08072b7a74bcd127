"""The bench of sessions that are told nothing: its sets, its rivals, and when a bar is crossed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from bench.naive import crossed, definition_of, is_beaten
from bench.naive_rivals import Result, Results, error_and_se, mistakes, play, records, rivals, rounds_of
from bench.naive_sets import NaiveSet, agrawal, flights, from_file, loaders


def small(name: str, rounds: int = 60) -> NaiveSet:
    if name.startswith("Agrawal"):
        return agrawal(int(name.rpartition("-")[2]), rounds)
    if name.startswith("flights"):
        return flights("late" if name == "flights-late" else "minutes", rounds)
    return loaders()[name]().played().first(rounds)


@pytest.mark.parametrize("name", loaders())
def test_rivals_play_every_set(name: str) -> None:
    played = small(name)
    assert played.name == name
    assert 60 >= len(played.rows) == len(played.truths) > 0
    json.dumps([played.rows, played.truths], allow_nan=False)  # what a client could send
    rows = records(played)
    found = {method: play(played, rows, make, len(rows)) for method, make in rivals(played, rows).items()}
    assert len(found) == 7 + (played.kind == "numbers") + 3 * played.is_series
    for result in found.values():
        assert result["error"] is not None
        assert 0.0 <= result["error"] < 1e6
    if played.kind == "labels":
        assert set(played.truths) == set(played.labels)
        labels = definition_of(played).labels
        assert labels is None or set(labels) == set(played.truths)
        trivial = mistakes("labels", [None, *played.truths[:-1]], played.truths).mean()
        assert found["last label"]["error"] == pytest.approx(trivial)


def test_published_sets_are_whole() -> None:
    sizes = {"iris": 150, "wine": 178, "diabetes": 442, "breast_cancer": 569, "Phishing": 1250, "Bananas": 5300}
    for name, size in sizes.items():
        assert len(loaders()[name]().rows) == size


def test_an_order_by_class_is_not_played() -> None:
    iris = loaders()["iris"]()
    assert iris.truths == sorted(iris.truths)
    played = iris.played()
    assert played.truths == iris.shuffled(seed=0).truths != iris.truths
    pairs = [sorted(zip(map(tuple, one.rows), one.truths, strict=True)) for one in (iris, played)]
    assert pairs[0] == pairs[1]


def test_flights_tell_nothing_of_the_future() -> None:
    late, minutes = small("flights-late", 300), small("flights-minutes", 300)
    assert not {"arr_delay", "arr_time", "air_time", "dep_delay", "dep_time"} & set(late.rows[0])
    assert not {"arr_delay", "arr_time", "air_time"} & set(minutes.rows[0])
    assert [truth == "late" for truth in late.truths] == [truth > 15.0 for truth in minutes.truths]
    assert any(value is None for row in late.rows for value in row.values())
    departures = [tuple(row[key] for key in ("month", "day", "sched_dep_time")) for row in late.rows]
    assert departures == sorted(departures)


def test_a_folder_of_sets(tmp_path: Path) -> None:
    X = np.arange(8.0).reshape(4, 2)
    np.savez(tmp_path / "numbers.npz", X=X, y=np.array([0.5, 1.5, 2.5, 3.5]))
    np.savez(tmp_path / "w8a.npz", X=X.astype(np.uint8), y=np.array([1, 1, -1, -1], dtype=np.int8))
    assert (from_file(tmp_path / "numbers.npz").kind, from_file(tmp_path / "w8a.npz").kind) == ("numbers", "labels")
    assert from_file(tmp_path / "w8a.npz").played().truths != [1, 1, -1, -1]
    assert loaders(tmp_path)["numbers"]().rows == X.tolist()


def test_errors() -> None:
    assert mistakes("labels", ["a", None, "b"], ["a", "a", "a"]).tolist() == [0.0, 1.0, 1.0]
    assert mistakes("numbers", [None, 1.0], [2.0, 4.0]).tolist() == [4.0, 9.0]
    draws = np.random.default_rng(0).standard_normal((2000, 400)) ** 2
    told = [error_and_se("numbers", costs) for costs in draws]
    errors, ses = np.array(told, dtype=float).T
    assert np.std(errors) == pytest.approx(np.mean(ses), rel=0.1)
    assert error_and_se("numbers", np.array([1.0, math.inf])) == (None, None)


def test_results_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "rivals.json"
    played = small("iris", 20)
    first = Results(file).of(played)
    file.write_text(json.dumps({"iris": first | {"KNN": Result(error=0.5, se=0.1, seconds=9.0, rounds=20)}}))
    again = Results(file).of(played)
    assert again["KNN"]["seconds"] == 9.0
    assert {m: r for m, r in again.items() if m != "KNN"} == {m: r for m, r in first.items() if m != "KNN"}


def test_when_a_bar_is_crossed() -> None:
    played = NaiveSet("made up", "labels", [[0.0]] * 4, [0, 1, 0, 1])
    costs = np.array([0.0, 0.0, 1.0, 1.0])
    for error, se, rounds, beaten in ((0.4, 0.1, 4, False), (0.3, 0.1, 4, True), (0.0, 0.0, 2, False)):
        assert is_beaten(played, costs, Result(error=error, se=se, seconds=1.0, rounds=rounds)) is beaten
    assert not is_beaten(played, costs, Result(error=None, se=None, seconds=1.0, rounds=4))
    assert rounds_of(played, 600, "KNN") == 4
    fast = {"a": {"update": 3.0, "run": 12.0}}
    held = {str(i): i > 0 for i in range(10)}
    assert crossed(held, {"breast_cancer": 0.03}, fast) == []
    assert (
        len(crossed(held | {"b": False, "c": False}, {"breast_cancer": 0.05}, {"a": {"update": 2.0, "run": 2.0}})) == 4
    )
