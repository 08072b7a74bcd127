"""Seeded schedules of workers, clients, lost replies, duplicates, crashes and rollbacks. A failing seed is named.

`python -m tests.simulation --first 10000` runs 10,000 of them.
"""

from __future__ import annotations

import pytest

from tests.budget import TIMES
from tests.simulation.world import simulate

SEEDS, PART = 60 * TIMES, 15


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_every_schedule_keeps_every_acknowledged_round(first: int) -> None:
    for seed in range(first, first + PART):
        try:
            simulate(seed)
        except Exception as error:
            pytest.fail(f"seed {seed}: {error}; run it again with `python -m tests.simulation {seed}`")


def test_a_store_that_says_it_has_what_it_has_not_is_found_out() -> None:
    """The checks can fail: planted lies are caught."""
    caught = 0
    for seed in range(20):
        try:
            simulate(seed, lies=0.2)
        except AssertionError:
            caught += 1
    assert caught >= 15
