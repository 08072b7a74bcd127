"""The benches of intervals and of late truths, on their shortest streams."""

from __future__ import annotations

import pytest

from bench import delay, intervals


@pytest.mark.parametrize("name", ["x 1000 and back", "just above, to 1", intervals.ENDLESS])
def test_no_bar_of_the_intervals_is_crossed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    score = dict(intervals.hard_streams())[name]
    for late in ("none", f"random {intervals.LATE}"):
        found = intervals.covered(score, intervals.delays_of(late, intervals.HARD_ROUNDS))
        assert not intervals.line(name, "", late, found), capsys.readouterr().out


def test_a_threshold_that_covers_too_little_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    found = intervals.covered(dict(intervals.hard_streams())["draws"], intervals.delays_of("none", 6000))
    assert intervals.line("draws", "", "none", intervals.Covered(found.scores, 0.8 * found.issued, 0))
    assert capsys.readouterr().out.rstrip().endswith("held, windows")


@pytest.mark.parametrize("late", ["random 10", "high ones 40", "batches 20"])
def test_no_bound_is_crossed_by_late_truths(late: str, capsys: pytest.CaptureFixture[str]) -> None:
    shortest = min((part for part in delay.entries() if part.y is not None), key=lambda part: len(part.X))
    assert not delay.row(shortest, late, None), capsys.readouterr().out


def test_learning_on_arrival_is_better_than_a_part_of_the_stream_each() -> None:
    shortest = min((part for part in delay.entries() if part.y is not None), key=lambda part: len(part.X))
    at_once, on_arrival, in_parts, *_ = delay.beside(shortest, "all 10")
    assert at_once < on_arrival
    assert on_arrival < in_parts


@pytest.mark.parametrize("late", [5, 50])
def test_the_delayed_form_is_ahead_at_new_places(late: int) -> None:
    found = delay.at_places(late)
    assert not found.arrival.is_crossed
    assert not found.delayed.is_crossed
    assert 2.0 * found.delayed.regret < found.arrival.regret
    assert found.delayed.bound < found.arrival.bound
