"""The demonstration, with few rounds: a real process, a real store, a table."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from service import demo
from service.client import OklClient
from service.demo_data import magic
from service.errors import ServiceError
from service.settings import Settings
from tests.command import START_S, is_free, okl, until_imports


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
        outcomes = demo.stream(client, console, 5)
        assert all(len(outcome.latencies_s) == 2 * 5 for outcome in outcomes)
        for session in demo.SESSIONS:
            metrics = client.inspect(session.name)["metrics"]
            assert metrics["rounds"] == 20
            assert 0 < metrics["mistakes"] < 20


def test_a_service_that_does_not_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="did not start"), demo.served(Settings(store="nothing://", port=1)):
        pytest.fail("it started")


# -- in a process, as `okl demo` --------------------------------------------------------------------------------------


@pytest.fixture
def demonstration(settings: Settings, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`okl demo` under way, alone in its process group as in a terminal of its own."""
    arguments = ("demo", "--store", settings.store, "--port", str(settings.port))
    with okl(*arguments, cwd=tmp_path, new_session=True) as process:
        yield process
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("tell", [os.kill, os.killpg], ids=["SIGTERM", "Ctrl-C in a terminal"])
def test_it_takes_its_service_along(
    demonstration: subprocess.Popen[str], settings: Settings, tell: Callable[[int, int], None]
) -> None:
    """A terminal sends the signal to the service too."""
    with OklClient(f"http://127.0.0.1:{settings.port}", timeout_s=1.0) as client:
        while not (client.is_ready() and client.sessions()):
            assert demonstration.poll() is None, demonstration.communicate()
            time.sleep(0.05)
    tell(demonstration.pid, signal.SIGTERM if tell is os.kill else signal.SIGINT)
    _, err = demonstration.communicate(timeout=START_S)
    assert (demonstration.returncode, err) == (130, "")
    assert is_free(settings.port)


@pytest.mark.parametrize("after_s", [0.0, 0.5])
def test_ctrl_c_at_the_start_is_quiet(demonstration: subprocess.Popen[str], settings: Settings, after_s: float) -> None:
    until_imports(demonstration)
    time.sleep(after_s)
    os.killpg(demonstration.pid, signal.SIGINT)
    _, err = demonstration.communicate(timeout=START_S)
    assert err == ""
    assert demonstration.returncode in (130, -signal.SIGINT)
    assert is_free(settings.port)
