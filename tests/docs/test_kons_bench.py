"""The bench of KONS on tiny streams: its tables, its figures, and that it fails when the theory does not hold."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from bench.papers import kons, kons_runs
from bench.papers.kons_figures import LABEL_GAP, SKETCHES, STEPS, apart, draw
from okl_core.diagnostics import Comparator

FIGURES = Path(__file__).parents[2] / "docs" / "figures"

LARGEST_BYTES = 60_000


def texts(figure: Path) -> set[str]:
    return {"".join(found.itertext()) for found in ElementTree.parse(figure).iter("{http://www.w3.org/2000/svg}text")}


def rows(printed: str) -> dict[str, list[str]]:
    """The rows of all tables by their first cell; the last of a name."""
    lines = [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("| ")]
    return {cells[0]: cells[1:] for cells in lines}


def test_it_prints_and_draws_every_learner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack((1e3 * rng.random((70, 2)), np.full(70, 5.0)))
    files = {"numbers": 400.0 + X[:, 0], "labels": np.where(X[:, 0] < 600.0, 1, -1).astype(np.int8)}
    for name, y in files.items():
        np.savez(tmp_path / f"{name}.npz", X=X, y=y)
    folder = tmp_path / "figures"
    sources = ["--regression", str(tmp_path / "numbers.npz"), "--classification", str(tmp_path / "labels.npz")]
    assert kons.main(["--rounds", "60", "--out", str(folder), *sources]) == 0
    printed = capsys.readouterr().out
    assert re.findall(r"^## (.*), .* loss$", printed, flags=re.MULTILINE) == [
        "Regression (numbers): 60 rounds, 3 inputs",
        "Classification (labels): 60 rounds, 3 inputs",
    ]
    found = rows(printed)
    assert found["learner"] == kons.COLUMNS[1:]
    assert {line.name for line in (*STEPS, *SKETCHES)} <= set(found)
    # The losses of ridge regression, and of KONS with adaptive steps, are the same numbers as long as none clips.
    regression = rows(printed[: printed.index("## Classification")])
    assert regression["Kernel ridge"][0] == regression["KONS, adaptive"][0]
    assert regression["Kernel AAR"][0] != regression["KONS, adaptive"][0]
    for name in ("regret", "time", "points"):
        assert {line.label for line in SKETCHES} <= texts(folder / f"kons-{name}.svg")
    assert "Regression (numbers): sketches" in texts(folder / "kons-regret.svg")


def test_it_fails_where_a_bound_does_not_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kons_runs, "newton_bound", lambda told, norm: 0.01)
    monkeypatch.setattr(kons, "draw", lambda *arguments: [])
    assert kons.main(["--rounds", "40", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert re.search(r"Regression, KONS, curvature: regret [0-9.]+ > 0.01 after 40 rounds", said)
    assert "Classification, Sketched-KONS, 0.1: regret" in said
    assert "OGD" not in said


@pytest.fixture(scope="module")
def measured() -> kons_runs.Result:
    return kons_runs.measure(kons_runs.tasks(40, None, None)[0])


@pytest.fixture
def result(measured: kons_runs.Result) -> kons_runs.Result:
    """One of a test's own, which it may change."""
    return copy.deepcopy(measured)


def test_it_fails_where_the_sketch_loses_too_much(result: kons_runs.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kons.broken(result) == []
    exact, sketch = (result.runs[name] for name in (kons_runs.KONS, "Sketched-KONS, 0.3"))
    best = result.bests[-1]
    monkeypatch.setattr(kons_runs.Played, "bound", lambda played, best: None)
    for factor, is_broken in ((0.99, False), (1.01, True)):
        sketch.losses[-1] += factor * exact.regret(best) / 0.3 - sketch.regret(best)
        assert ["the sketch of 0.3" in line for line in kons.broken(result)] == [True] * is_broken


def test_a_regret_below_zero_is_drawn_as_well(result: kons_runs.Result, tmp_path: Path) -> None:
    for played in result.runs.values():
        played.losses[:] = 0.0
    draw([result], tmp_path)
    assert {line.label for line in STEPS} <= texts(tmp_path / "kons-regret.svg")


def test_labels_are_moved_apart() -> None:
    assert apart(np.array([0.1, 0.5, 0.9])) == [0.1, 0.5, 0.9]
    gap = LABEL_GAP
    np.testing.assert_allclose(apart(np.array([0.5, 0.5])), [0.5 - gap / 2, 0.5 + gap / 2])
    moved = apart(np.array([0.3, 0.31, 0.31 + 0.9 * gap, 0.8]))
    assert (np.diff(moved) >= gap - 1e-12).all()
    assert moved[-1] == 0.8


def test_the_figures_of_the_documentation_are_small_and_complete() -> None:
    for name, lines in (("regret", (*STEPS, *SKETCHES)), ("time", SKETCHES), ("points", SKETCHES)):
        figure = FIGURES / f"kons-{name}.svg"
        assert figure.stat().st_size < LARGEST_BYTES
        assert {line.label for line in lines} | {"round t"} <= texts(figure)


def test_a_comparator_is_that_of_its_prefix() -> None:
    result = kons_runs.measure(kons_runs.tasks(50, None, None)[1])
    lengths = [len(best.losses) for best in result.bests]
    assert lengths == sorted(set(lengths))
    assert lengths[-1] == 50
    best: Comparator = result.bests[3]
    played = result.runs[kons_runs.KONS]
    assert played.regret(best) == pytest.approx(played.losses[: lengths[3]].sum() - best.losses.sum())
