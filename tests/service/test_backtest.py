"""`okl backtest` against the learner itself, given the same rounds with the same delays."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from service.cli import app
from service.commands.backtest import backtest
from service.demo_data import magic
from service.session.session import Session
from tests.service.api import serving
from tests.service.definitions import GAUSSIAN, RIDGE, define

X, Y = magic()
GRADIENT: dict[str, Any] = {"kind": "kernel-ogd", "config": {"kernel": GAUSSIAN, "loss": "squared"}}
DELAY, N = 5, 40


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A session whose truths come late, and then a block of rounds."""
    url = f"sqlite:///{tmp_path / 'okl.sqlite3'}"

    async def lived() -> None:
        async with serving(url) as api:
            await api.create(RIDGE, y_range=[-1, 1])
            for row in range(N + DELAY):
                if row < N:
                    await api.predict(X[row].tolist(), id=f"r{row}")
                    # The clock of the entries has to tell them apart.
                    await asyncio.sleep(0.002)
                if row >= DELAY:
                    await api.update(float(Y[row - DELAY]), id=f"r{row - DELAY}")
                    await asyncio.sleep(0.002)
            await api.rounds(X[N : N + 20].tolist(), Y[N : N + 20].tolist())

    asyncio.run(lived())
    return url


def direct(learner: dict[str, Any]) -> Session:
    """The same rounds by hand."""
    session = Session(define(learner, y_range=(-1.0, 1.0)))
    made = []
    for row in range(N + DELAY):
        if row < N:
            raw = session.read_input(X[row])
            made.append((raw, session.forecast(raw)))
        if row >= DELAY:
            raw, forecast = made[row - DELAY]
            session.learn(session.play(raw, *session.reckoned(float(Y[row - DELAY])), issued=forecast))
    for row in range(N, N + 20):
        session.learn(session.play(session.read_input(X[row]), *session.reckoned(float(Y[row]))))
    return session


def test_a_backtest_is_what_the_learner_would_have_done(store: str) -> None:
    found = backtest(Console(), store, "s", ['{"kind": "kernel-ridge", "config": {"kernel": {"kind": "gaussian", '
                     '"sigma": 0.5}}}', '{"kind": "kernel-ogd", "config": {"loss": "squared", "kernel": {"kind": '
                     '"gaussian", "sigma": 0.5}}}'])  # fmt: skip
    by_name = {one.name: one for one in found.contestants}
    for learner in (RIDGE, GRADIENT):
        tally, own = by_name[learner["kind"]].tally, direct(learner).card.tally()
        assert tally.rounds == own.rounds == N + 20
        assert tally.error == pytest.approx(own.error, rel=1e-9)
    # The session's own learner has made the errors that the session has made.
    assert sum(found.errors) == pytest.approx(by_name["kernel-ridge"].tally.error, rel=1e-9)
    assert found.session.card.error == pytest.approx(sum(found.errors), rel=1e-9)
    outcome = by_name["kernel-ridge"].outcome
    assert outcome is not None
    assert outcome.own == pytest.approx(outcome.rival)
    assert np.isclose(found.session.card.error, direct(RIDGE).card.error)


def test_the_command_prints_a_table(store: str) -> None:
    result = CliRunner().invoke(app, ["backtest", "s", "--learner", "mean", "--learner", "no-such", "--store", store])
    assert result.exit_code == 0, result.output
    for told in ("60 rounds of the journal", "as it was", "mean", "no-such", "beside"):
        assert told in " ".join(result.output.split()), result.output
    assert CliRunner().invoke(app, ["backtest", "none", "--learner", "mean", "--store", store]).exit_code == 1
    assert CliRunner().invoke(app, ["backtest", "s", "--store", store]).exit_code == 2
    assert CliRunner().invoke(app, ["backtest", "s", "--learner", "pomdr", "--store", store]).exit_code == 1
