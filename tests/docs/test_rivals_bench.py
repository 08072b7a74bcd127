"""The bench of the rivals: the page tells of every figure of the authors' programs, and none is far from ours."""

from __future__ import annotations

import numpy as np
import pytest

from bench.frontier import Told
from bench.papers.rivals import COLUMNS, FIGURES, Figure, cells, main, measure
from tests.docs.pages import DOCS

PAGE = (DOCS / "frontier.md").read_text()


def test_the_page_has_a_row_of_each_figure() -> None:
    rows = [
        line.strip("| ").split(" | ")
        for line in PAGE.splitlines()
        if line.startswith(("| ahpatron | ", "| nons-ald | "))
    ]
    told = [row for row in rows if len(row) == len(COLUMNS)]
    assert [row[:3] for row in told] == [[one.learner, one.data, f"{one.sigma:g}"] for one in FIGURES]
    assert [float(row[6]) for row in told] == [one.error for one in FIGURES]
    assert all(abs(float(row[7])) < 2.0 for row in told)


def test_a_row_tells_how_far_apart_the_two_are() -> None:
    told = [Told(error, 10.0, 0.0, 0.0) for error in (16.0, 17.0, 18.0)]
    assert cells(FIGURES[0], told) == ["ahpatron", "magic", "0.5", "17.00", "1.00", "0.58", "16.68", "+0.3", "10"]


@pytest.mark.parametrize("one", [FIGURES[0], FIGURES[-1]], ids=["labels", "numbers"])
def test_truths_that_are_numbers_are_scaled(one: Figure) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(200, 3))
    y = np.where(X[:, 0] > 0.5, 1.0, -1.0) if one.learner == "ahpatron" else 100.0 * X[:, 0]
    errors = [told.error for told in measure(one, (X, y), 2)]
    assert len(set(errors)) == 2
    assert max(errors) < 60.0


def test_magic_needs_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--orders", "2"])
    head, _, row = capsys.readouterr().out.splitlines()
    assert head == f"| {' | '.join(COLUMNS)} |"
    assert row.startswith("| ahpatron | magic | 0.5 | 16.")
