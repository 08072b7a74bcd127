"""Many rounds in several requests: wrong rows are named as they were given, and what is too large is sent in less."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

import okl
from okl.client import Client
from okl.errors import InvalidInput, NumericalFailure, PayloadTooLarge, WrongDimension, WrongTruth
from okl.problems import error_of
from okl.rounds import Rounds
from okl.talks import Call, hold
from service.settings import Settings
from tests.service.api import app_with
from tests.service.listening import listening

ROWS = 2_500


@pytest.fixture(scope="module")
def small() -> Iterator[str]:
    """A service that takes 300 rounds, or 20,000 bytes, at once."""
    with listening("sqlite://", app_with(Settings(store="sqlite://", max_batch=300, max_body_bytes=20_000))) as url:
        yield url


@pytest.mark.parametrize("where", [3, ROWS - 1])
def test_a_wrong_row_is_named_as_it_was_given(client: Client, where: int) -> None:
    session = client.session("two", "mean", dim=2, y_range=[0.0, 1.0])
    rows: list[list[float]] = [[1.0, 2.0]] * ROWS
    rows[where] = [1.0]
    with pytest.raises(WrongDimension, match=f"/x/{where}: ") as told:
        session.play(rows, [0.5] * ROWS)
    assert [one["pointer"] for one in told.value.extra["errors"]] == [f"/x/{where}"]
    assert session.describe()["t"] == where // 1000 * 1000
    learned = (
        [f"The {where // 1000 * 1000:,} rounds before those of this request were learned."] if where > 1000 else []
    )
    assert getattr(told.value, "__notes__", []) == learned
    with pytest.raises(WrongDimension, match=f"/x/{where}: "):
        session.predict_many(rows)
    truths = [0.5] * ROWS
    truths[where] = 7.0
    with pytest.raises(WrongTruth, match=f"/y/{where}: "):
        session.play([[1.0, 2.0]] * ROWS, truths)


@pytest.mark.parametrize("where", [3, ROWS - 1])
def test_a_wrong_weight_is_named_as_it_was_given(client: Client, where: int) -> None:
    session = client.session("ridge", "kernel-ridge", dim=2, y_range=[0.0, 1.0])
    rows, truths, weights = [[1.0, 2.0]] * ROWS, [0.5] * ROWS, [2.0] * ROWS
    weights[where] = 0.0
    with pytest.raises(InvalidInput, match=f"/weight/{where}: "):
        session.play(rows, truths, weight=weights)
    with pytest.raises(ValueError, match=f"{ROWS} inputs and 3 weights"):
        session.play(rows, truths, weight=[2.0] * 3)


@pytest.mark.anyio
async def test_of_an_iterator_too(url: str, client: Client) -> None:
    async def rounds() -> AsyncIterator[tuple[list[float], float]]:
        for i in range(ROWS):
            yield [1.0, 2.0] if i != 2_400 else [1.0], 0.5

    async with okl.AsyncClient(url) as asked:
        session = await asked.session("iterated", "mean", dim=2)
        with pytest.raises(WrongDimension, match="/x/2400: "):
            await session.play(rounds())


@pytest.mark.parametrize("width", [1, 40])
def test_what_is_too_large_is_sent_in_less(small: str, width: int) -> None:
    X = np.random.default_rng(0).normal(size=(1_100, width))
    with Client(small) as client:
        session = client.session(f"wide-{width}", "mean")
        played = session.play(X, X[:, 0])
        assert (played.t, played.rounds, len(played.columns()["values"])) == (1_100, 1_100, 1_100)
        assert played.columns()["values"][-1] == pytest.approx(X[:-1, 0].mean())
        assert len(session.predict_many(X)) == 1_100
        with pytest.raises(PayloadTooLarge):
            session.play(np.ones((3, 30_000)), [1.0, 2.0, 3.0])
        assert session.describe()["t"] == 1_100


def test_a_numerical_failure_too() -> None:
    def send(call: Call) -> Any:
        if len(call.json["x"]) == 1_000:
            return [{"t": 0}] * 1_000
        raise NumericalFailure("/x/7: it overflows", errors=[{"pointer": "/x/7", "detail": "it overflows"}])

    with pytest.raises(NumericalFailure, match="/x/1007: it overflows") as told:
        hold(Rounds("s").predict_many([[1.0]] * 1_500), send)
    assert told.value.extra["errors"][0]["pointer"] == "/x/1007"


def test_a_balancer_may_be_the_one_that_takes_less() -> None:
    told: Any = error_of(413, b"<html>413 Request Entity Too Large</html>")
    assert isinstance(told, PayloadTooLarge)
