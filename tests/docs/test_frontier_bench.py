"""`bench.frontier`: every learner of its tables plays, and what was played is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.frontier import COLUMNS, Results, duel, entries, lines
from bench.frontier_figures import draw
from okl_core.types import F64


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
    assert len(told) == (10 if are_labels else 8)
    for entry, cells in zip(found, told, strict=True):
        assert len(cells) == len(COLUMNS)
        assert 0.0 < entry.mean("error") < 100.0
        assert int(cells[4]) <= 21  # skegd keeps one more
    ours, other = (float(duel(found)[i]) for i in (3, 5))
    assert min(ours, other) == pytest.approx(min(entry.mean("error") for entry in found), abs=0.005)
    assert entries("made", X, y, 20, 2, Results(tmp_path / "results.jsonl")) == found
    more = entries("made", X, y, 20, 3, Results(tmp_path / "results.jsonl"))
    assert [len(entry.orders) for entry in more] == [3] * len(found)
    assert [entry.orders[:2] for entry in more] == [entry.orders for entry in found]
    draw(tmp_path / "made.svg", "made", are_labels, [*found, *entries("made", X, y, 10, 2, results)])
    assert "pros-n-kons" in (tmp_path / "made.svg").read_text()
