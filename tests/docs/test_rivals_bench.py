"""The bench of the rivals: the page tells of every figure of the authors' programs, and none is far from ours."""

from __future__ import annotations

import numpy as np
import pytest

from bench.frontier import Told
from bench.papers.rivals import COLUMNS, FIGURES, Figure, cells, contender, keeps_first, main, measure
from okl_core import create
from tests.docs.pages import DOCS

PAGE = (DOCS / "frontier.md").read_text()
NAMES = tuple(f"| {name} | " for name in dict.fromkeys(one.learner for one in FIGURES))


def test_the_page_has_a_row_of_each_figure() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith(NAMES)]
    told = [row for row in rows if len(row) == len(COLUMNS)]
    assert [row[:3] for row in told] == [[one.learner, one.data, f"{one.sigma:g}"] for one in FIGURES]
    assert [[float(cell) for cell in row[5:7]] for row in told] == [[one.error, one.deviation] for one in FIGURES]
    assert all(abs(float(row[7])) < 3.0 for row in told)


def test_a_row_tells_how_far_apart_the_two_are() -> None:
    told = [Told(error, 10.0, 0.0, 0.0) for error in (16.0, 17.0, 18.0, 19.0)]
    figure = Figure("ahpatron", "magic", 0.5, 16.0, 2.0)
    # The variances of the means are 5/3 / 4 and 4 / 10.
    assert cells(figure, told) == ["ahpatron", "magic", "0.5", "17.500", "1.291", "16.000", "2.000", "+1.7", "10"]


@pytest.mark.parametrize("learner", list(dict.fromkeys(one.learner for one in FIGURES)))
def test_truths_that_are_numbers_are_scaled(learner: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(200, 3))
    y = np.where(X[:, 0] > 0.5, 1.0, -1.0) if learner == "ahpatron" else 100.0 * X[:, 0]
    errors = [told.error for told in measure(Figure(learner, "made up", 0.5, 0.0, 1.0), (X, y), 2)]
    assert len(set(errors)) == 2
    assert max(errors) < 400.0


def test_coins_that_keep_the_first_input_keep_it_whichever_it_is() -> None:
    one = contender("CON-KONS", 100)
    kept = [seed for seed in range(200) if keeps_first(one, seed)]
    # With the probability (1 + 1/2) / (1 + 10).
    assert 15 < len(kept) < 40
    for seed in range(30):
        learner = create({"kind": one.kind, "seed": seed, "config": one.config}, 2)
        learner.update([0.3, -5.0], 0.7)
        assert (learner.describe()["dictionary"] == 1) == (seed in kept)


def test_magic_needs_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--orders", "2"])
    head, _, row = capsys.readouterr().out.splitlines()
    assert head == f"| {' | '.join(COLUMNS)} |"
    assert row.startswith("| ahpatron | magic | 0.5 | 16.")
