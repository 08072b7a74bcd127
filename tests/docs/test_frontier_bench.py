"""`bench.frontier`: every learner of its tables plays, and what was played is kept."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from bench.frontier import (
    COLUMNS,
    Contender,
    Entry,
    Results,
    duel,
    entries,
    lines,
    of_labels,
    of_numbers,
    over_budgets,
    restarts,
)
from bench.frontier_figures import draw
from bench.record import RESULTS
from okl_core.types import F64
from tests.docs.pages import ROOT

SETS = ["magic", "airfoil", "energy", "abalone", "ccpp", "mushrooms", "bike", "cal_housing", "a9a", "w8a", "ijcnn1"]


def stream(n: int) -> tuple[F64, F64]:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 3))
    return X, 0.5 + 0.3 * np.sin(5.0 * X[:, 0]) * X[:, 1] + 0.05 * rng.standard_normal(n)


@pytest.mark.parametrize("are_labels", [True, False], ids=["labels", "numbers"])
def test_every_learner_has_a_line(are_labels: bool, tmp_path: Path) -> None:
    X, y = stream(90)
    y = np.where(y > 0.5, 1.0, -1.0) if are_labels else y
    results = Results(tmp_path / "results.jsonl")
    found = entries("made", X, y, 20, 2, results)
    told = list(lines(found))
    assert len(told) == (11 if are_labels else 9)
    for entry, cells in zip(found, told, strict=True):
        assert len(cells) == len(COLUMNS)
        assert 0.0 < entry.mean("error") < 100.0
        assert int(cells[4]) <= 21  # skegd keeps one more
    best = duel(found)
    assert min(best.ours.mean("error"), best.other.mean("error")) == min(entry.mean("error") for entry in found)
    assert (best.ours.is_ours, best.other.is_ours) == (True, False)
    assert math.isnan(best.ahead) or (best.ahead > 0.0) == (best.ours.mean("error") < best.other.mean("error"))
    assert entries("made", X, y, 20, 2, Results(tmp_path / "results.jsonl")) == found
    errors = {entry.learner: entry.mean("error") for entry in found}
    again = errors["pros-n-kons, reset"] / errors["pros-n-kons, squared hinge" if are_labels else "pros-n-kons"]
    assert restarts(found) == ["made", "20", f"{again:.2f}"]
    more = entries("made", X, y, 20, 3, Results(tmp_path / "results.jsonl"))
    assert [len(entry.orders) for entry in more] == [3] * len(found)
    assert [entry.orders[:2] for entry in more] == [entry.orders for entry in found]
    assert all(len(entry.tried) == len(set(entry.tried)) == 8 and entry.sigma in entry.tried for entry in found)
    draw(tmp_path / "made.svg", "made", are_labels, [*found, *entries("made", X, y, 10, 2, results)])
    assert "pros-n-kons" in (tmp_path / "made.svg").read_text()


def test_a_wider_grid_plays_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = stream(60)
    wide = entries("made", X, y, 20, 2, Results(None))
    monkeypatch.setattr("bench.frontier.SIGMAS", (0.5, 1.0))
    entries("made", X, y, 20, 2, Results(tmp_path / "results.jsonl"))
    monkeypatch.undo()
    widened = entries("made", X, y, 20, 2, Results(tmp_path / "results.jsonl"))
    for one, other in zip(wide, widened, strict=True):
        assert sorted(one.tried) == sorted(other.tried)
        assert [told.error for told in one.orders] == [told.error for told in other.orders]


def test_the_page_tells_what_was_played() -> None:
    page, results = (ROOT / "docs" / "frontier.md").read_text(), Results(RESULTS / "frontier.jsonl")

    def found(name: str, budget: int) -> list[Entry]:
        contenders: list[Contender] = (of_numbers if results.find(name, "nons-ald", 400) else of_labels)(1000, 400)
        entries = [results.find(name, one.name, budget) for one in contenders]
        assert all(entry is not None and len(entry.tried) == 8 for entry in entries)
        return [entry for entry in entries if entry is not None]

    assert len(SETS) == page.count("\n### ")
    for name in SETS:
        assert all(len(entry.orders) == 10 for entry in found(name, 400))
        told = list(lines(found(name, 400)))
        cells = duel(found(name, 400)).cells
        (budgets,) = over_budgets([duel(found(name, budget)) for budget in (100, 200, 400, 800)])
        for row in (*told, [name, *cells[2:]], budgets):
            assert f"| {' | '.join(row)} |" in page
