"""The demonstration, with few rounds: a real process, a real store, a table."""

from __future__ import annotations

import io
import socket
from pathlib import Path

import pytest
from rich.console import Console

from service import demo
from service.client import OklClient
from service.demo_data import magic
from service.errors import ServiceError
from service.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    return Settings(store=f"sqlite:///{tmp_path / 'demo.sqlite3'}", port=port)


def test_the_data_that_ships() -> None:
    X, y = magic()
    assert (X.shape, y.shape) == ((19_020, 10), (19_020,))
    assert (X.min(), X.max()) == (0.0, 1.0)
    assert sorted(set(y)) == [-1.0, 1.0]


def test_it_streams_prints_and_goes_on_where_it_stopped(settings: Settings) -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=160)
    demo.run(settings, console, rounds=15, stop=True)
    for session in demo.SESSIONS:
        assert f" {session.name} " in shown.getvalue()
    with demo.served(settings) as (_, url), OklClient(url) as client:
        counts = {session["name"]: session["t"] for session in client.sessions()}
        assert counts == {session.name: 15 for session in demo.SESSIONS}
        outcomes = demo.stream(client, console, 20)
        assert all(len(outcome.latencies_s) == 2 * 5 for outcome in outcomes)
        for session in demo.SESSIONS:
            metrics = client.inspect(session.name)["metrics"]
            assert metrics["rounds"] == 20
            assert 0 < metrics["mistakes"] < 20


def test_a_service_that_does_not_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="did not start"), demo.served(Settings(store="nothing://", port=1)):
        pytest.fail("it started")
