"""The bench of lost updates: its judgement, a tiny run of ours, and the table in the README."""

from __future__ import annotations

import doctest
import re

import pytest

from bench import lost_updates
from bench.lost_updates import SITUATIONS, Cell, Way
from service.demos import tally
from service.demos.tally import UpdateTally
from tests.docs.pages import README, table_rows


def test_the_tally() -> None:
    assert doctest.testmod(tally) == doctest.TestResults(failed=0, attempted=3)
    assert tally.tally([], {}) == UpdateTally(0, 0, 0, 0)
    # A round that was told and is gone: the session went back.
    assert tally.tally_of_rounds({1: 1, 2: 2}, before=0, now=1) == UpdateTally(2, 1, 1, 0)
    # One that nobody has acknowledged.
    assert tally.tally_of_rounds({1: 1}, before=0, now=2) == UpdateTally(1, 2, 0, 1)


def test_what_holds() -> None:
    def cell(found: UpdateTally, predicts: bool) -> Cell:
        return Cell(Way("okl", store="sqlite://"), SITUATIONS[0], found, 0, predicts)

    assert cell(UpdateTally(9, 9, 0, 0), True).holds
    assert not cell(UpdateTally(9, 9, 1, 1), True).holds
    assert not cell(UpdateTally(9, 9, 0, 0), False).holds
    assert str(cell(UpdateTally(9, 9, 0, 0), False)) == "0 lost, 0 doubled, predicts no more"


def test_ours_loses_and_doubles_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert lost_updates.main(["--updates", "40", "--store", "sqlite", "--alone"]) == 0
    rows = table_rows(capsys.readouterr().out)
    cells = [row for row in rows if row[0] == "**okl on SQLite**"]
    assert [row[2:] for row in cells[:4]] == [["40", "40", "0", "0", "0", "yes"]] * 3 + [
        ["39", "39", "0", "0", "1", "yes"]
    ]
    assert cells[4][1:] == ["0 lost, 0 doubled"] * 4


def test_a_loss_of_ours_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    lossy = Cell(Way("okl", store="sqlite://"), SITUATIONS[0], UpdateTally(9, 8, 1, 0), 0, True)
    usual = Cell(Way("usual", "/memory"), SITUATIONS[0], UpdateTally(9, 8, 1, 0), 0, True)
    for cell, code in ((lossy, 1), (usual, 0)):
        monkeypatch.setattr(lost_updates, "measure", lambda *_, cell=cell: [cell])
        assert lost_updates.main(["--store", "sqlite", "--alone"]) == code


def test_the_readme_has_the_table() -> None:
    headings = [situation.heading for situation in SITUATIONS]
    found = re.search(rf"^\| \| {re.escape(' | '.join(headings))} \|\n(\|.*\n)+", README.read_text(), re.MULTILINE)
    assert found
    ours = [row for row in table_rows(found[0]) if row[0].startswith("**okl")]
    assert [row[1:] for row in ours] == [["0 lost, 0 doubled"] * len(headings)] * 2
