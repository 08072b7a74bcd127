"""The bench of SkeGD: what it plays is SkeGD, and the wrong rows are what costs so much."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.papers.pomdr_runs import measure as measure_learner
from bench.papers.skegd import DESCRIBED, FACTORS, PROGRAM, READINGS, main, measure
from okl_core.types import F64
from service.demo_data import magic

SIGMA, ORDERS, ROUNDS = 0.5, 4, 6000


def part_of_magic() -> tuple[F64, F64]:
    """By class: the rows that the program takes for landmarks are then of one class, as in its file."""
    X, y = magic()
    chosen = np.random.default_rng(0).permutation(len(y))[:ROUNDS]
    chosen = chosen[np.argsort(-y[chosen], kind="stable")]
    return X[chosen], y[chosen]


def test_as_described_it_errs_as_often_as_the_learner() -> None:
    X, y = part_of_magic()
    steps = {"step_size": "horizon", "horizon": len(y), "step_factor": 100.0, "carry": "match"}
    ours = measure_learner("skegd", steps, SIGMA, X, y, ORDERS).mistakes
    described = measure(DESCRIBED, X, y, SIGMA, 100.0, ORDERS)
    assert described.mean() == pytest.approx(ours.mean(), abs=0.5)


def test_the_wrong_rows_cost_more_than_all_the_rest() -> None:
    X, y = part_of_magic()
    found = {reading.name: measure(reading, X, y, SIGMA, 100.0, ORDERS).mean() for reading in READINGS}
    for reading in READINGS:
        excess = found[reading.name] - found[DESCRIBED.name]
        assert excess > 5.0 if reading.rows else abs(excess) < 2.0, reading.name


def test_where_the_buffer_never_fills_all_agree() -> None:
    X = np.vstack((np.zeros((150, 2)), np.ones((150, 2))))
    y = np.repeat([1.0, -1.0], 150)
    found = [measure(reading, X, y, SIGMA, 100.0, 2) for reading in READINGS]
    assert all(np.array_equal(each, found[0]) for each in found)


def test_it_prints_a_table_a_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = part_of_magic()
    np.savez(tmp_path / "small.npz", X=X[::20], y=y[::20].astype(np.int8))
    monkeypatch.setattr("bench.papers.skegd.magic", lambda: (X[::20], y[::20]))
    main(["--mushrooms", str(tmp_path / "small.npz"), "--permutations", "2"])
    said = capsys.readouterr().out
    assert "## magic: 24.17 ± 0.95 printed" in said
    assert "## mushrooms: 0.26 ± 0.02 printed" in said
    for factor in FACTORS:
        assert said.count(f"\n| {factor:g} |") == 2
    assert said.count(f" {PROGRAM.name} |") == 3
    assert said.splitlines()[-1].startswith("| mushrooms | ")
