"""`bench.journal`: what it counts, and that all snapshots together are no larger than the journal."""

from __future__ import annotations

import pytest

from bench.journal import main

ROUNDS = 600


def test_it_counts_every_round(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--rounds", str(ROUNDS)])
    _, numbers = capsys.readouterr().out.splitlines()
    rounds, journal, snapshots, number, a_round = map(float, numbers.split())
    assert rounds == ROUNDS
    assert 0 < number < ROUNDS
    assert 0 < snapshots <= journal
    # Ten inputs of eight bytes are in each entry.
    assert journal > 80 * ROUNDS
    assert a_round == pytest.approx((journal + snapshots) / ROUNDS, abs=0.1)
