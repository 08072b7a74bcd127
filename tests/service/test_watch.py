"""`okl watch` and `okl sessions`: what they print, how they go on, how they end."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from okl.client import Client
from okl.errors import Overloaded, StoreUnavailable, Unreachable
from service.cli import app
from service.commands import watch
from tests.command import okl, serving
from tests.service.definitions import EXACT, MEAN
from tests.service.listening import listening


@pytest.fixture
def run(url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("OKL_URL", url)

    def run(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == code, (result.output, result.exception)
        assert "Traceback" not in result.output
        return result.output

    return run


def fill(client: Client, name: str, rounds: int = 100) -> None:
    client.create(name, "last-label", labels=["no", "yes"], alarm={"error_above": 0.2})
    client.rounds(name, [[i % 2] for i in range(rounds)], ["yes" if i % 4 < 2 else "no" for i in range(rounds)])


def test_one_frame(run: Any, client: Client) -> None:
    fill(client, "s")
    client.predict("s", [3.0], id="waits")
    client.update("s", "yes", x=[5.0])
    told = run("watch", "s", "--once")
    found, past = client.inspect("s"), client.history("s")
    assert "s  last-label, 101 rounds" in told
    assert found["verdict"]["text"] in told
    assert f"mistake rate {found['metrics']['mistake_rate']:.1%} of the last 101 rounds" in told
    assert f"{past['rival']}:" in told
    assert "1 waiting, 0 never came" in told
    assert past["alarms"][-1]["text"] in told
    assert any(bar in told for bar in watch.BARS)
    assert re.findall(r"^ *(\d+) +(?:yes|no) ", told, re.MULTILINE) == [str(t) for t in range(101, 91, -1)]
    assert "0: 5.0" in told
    assert "rounds/s" in told


def test_a_session_without_rounds_and_one_that_is_not_there(run: Any, client: Client) -> None:
    client.create("new")
    assert "no rounds yet" in run("watch", "new", "--once")
    client.rounds("new", [[0.0]] * 20, ["a", "b"] * 10)
    client.freeze("new", "still")
    assert "frozen at round 20 of new: it predicts, and learns nothing" in run("watch", "still", "--once")
    for once in ((), ("--once",)):
        told = run("watch", "nobody", *once, code=1)
        assert told.startswith("Session not found: ")
        assert len(told.splitlines()) == 1


def test_numbers_are_shown_as_numbers(run: Any, client: Client) -> None:
    client.create("n", MEAN, **EXACT)
    client.rounds("n", [[0.0]] * 20, [i / 20 for i in range(20)])
    told = run("watch", "n", "--once")
    assert f"RMSE {client.inspect('n')['metrics']['rmse']:.4g} of the last 20 rounds" in told


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_long_input_leaves_room_for_what_became_of_it(client: Client, width: int) -> None:
    client.create("wide", MEAN, **EXACT)
    client.rounds("wide", [[1 / 3, 2 / 3, 1e-200]] * 1001, [i / 3003 for i in range(1001)])
    console = Console(width=width, file=io.StringIO())
    with console.capture() as captured:
        console.print(watch.frame(watch.Glance.at(client, "wide")))
    told = captured.get().splitlines()
    last = client.last_rounds("wide", 1)[0]
    shown = next(line.split() for line in told if line.lstrip().startswith("1,001"))
    assert shown[:4] == ["1,001", f"{last['value']:.4g}", f"{last['y']:.4g}", f"{last['loss']:.3g}"]


def test_what_inputs_and_labels_say_steers_no_terminal(run: Any, client: Client) -> None:
    client.create("s", "last-label", labels=["\x1b[31mred", "[bold]"])
    client.rounds("s", [{"a\x07": "\x1b]0;title\x07"}, {"a\x07": "y" * 200}], ["\x1b[31mred", "[bold]"])
    told = run("watch", "s", "--once")
    assert "\x07" not in told
    assert "\x1b" not in told
    assert "·[31mred" in told
    assert "[bold]" in told


def test_an_input_is_shown_as_json(run: Any, client: Client) -> None:
    client.create("s", labels=["no", "yes"])
    client.rounds("s", [{"a": 1.5, "b": None, "c": True, "d": "blue"}], ["yes"])
    assert "a: 1.5, b: null, c: true, d: blue" in run("watch", "s", "--once")


def test_lines_on_each_change_until_it_is_gone(url: str, client: Client, tmp_path: Path) -> None:
    """A real process: rounds are told as they come, and the end of the session too."""
    fill(client, "s")
    with okl("watch", "s", cwd=tmp_path, OKL_URL=url, PYTHONUNBUFFERED="1") as process:
        assert line_of(process).startswith("t 100 · ")
        client.update("s", "yes", x=[5.0])
        while not (told := line_of(process)).startswith("t 101 · "):
            assert told.startswith("t 100 · ")
        client.delete("s")
        assert process.wait(20) == 1
        assert process.stderr is not None
        assert process.stderr.read() == "Session gone: s was deleted.\n"


def test_a_locale_without_the_characters_gets_question_marks(url: str, client: Client, tmp_path: Path) -> None:
    fill(client, "s")
    locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    with okl("watch", "s", "--once", cwd=tmp_path, is_warm=False, OKL_URL=url, **locale) as process:
        told, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert "????" in told


def test_ctrl_c_ends_it_without_a_word(url: str, client: Client, tmp_path: Path) -> None:
    fill(client, "s")
    with okl("watch", "s", cwd=tmp_path, OKL_URL=url, PYTHONUNBUFFERED="1") as process:
        line_of(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_it_goes_on_when_the_service_starts_anew(tmp_path: Path) -> None:
    """On the same port and store; a round that was learned meanwhile is told, the ones before are not told again."""
    store = f"sqlite:///{tmp_path / 'okl.sqlite3'}"
    with serving(store, tmp_path) as (server, url), Client(url) as client:
        fill(client, "s")
        with okl("watch", "s", cwd=tmp_path, OKL_URL=url, PYTHONUNBUFFERED="1") as process:
            line_of(process)
            server.kill()
            server.wait(20)
            with listening(store, port=int(url.rpartition(":")[2])):
                client.update("s", "yes", x=[5.0])
                while not (told := line_of(process)).startswith("t 101 · "):
                    assert told.startswith("t 100 · ")


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


class Refusing(Client):
    """Has no room for events, or is cut whenever they are asked for."""

    error: Exception = Overloaded("no room")
    asked = 0

    def events(self, session: str, last_id: str | None = None) -> Generator[tuple[str, dict[str, Any]]]:
        self.asked += 1
        raise self.error
        yield


def test_refused_events_are_polled_for(url: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EVERY_S", 0.0)
    fill(client, "s")
    with Refusing(url) as refusing:
        looks = watch.looks(refusing, "s")
        for t in range(100, 100 + 2 * watch.POLLS):
            assert next(looks).session["t"] == t
            client.update("s", "yes", x=[5.0])
        assert refusing.asked == 2
        client.delete("s")
        with pytest.raises(watch.SessionGone):
            next(looks)


def test_a_service_that_is_away_while_it_is_polled_is_waited_for(
    url: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "EVERY_S", 0.0)
    fill(client, "s")
    with Refusing(url) as refusing:
        looks = watch.looks(refusing, "s")
        next(looks)
        next(looks)
        history, answers = refusing.history, iter([Unreachable("away"), StoreUnavailable("away")])

        def away(session: str) -> dict[str, Any]:
            if (error := next(answers, None)) is not None:
                raise error
            return history(session)

        monkeypatch.setattr(refusing, "history", away)
        assert next(looks).session["t"] == 100


def test_who_does_not_come_back_is_given_up(url: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PATIENCE_S", 0.6)
    fill(client, "s")
    with Refusing(url) as refusing:
        refusing.error = Unreachable("cut")
        looks = watch.looks(refusing, "s")
        next(looks)
        with pytest.raises(Unreachable):
            next(looks)
        assert refusing.asked == 3


def test_a_terminal_is_drawn_anew(url: str, client: Client) -> None:
    fill(client, "s")
    console = Console(force_terminal=True, width=100, record=True, file=io.StringIO())
    threading.Timer(1.5, lambda: delete(url, "s")).start()
    with Client(url) as other, pytest.raises(watch.SessionGone):
        watch.watch(other, console, "s", once=False)
    assert "last-label, 100 rounds" in console.export_text()


def delete(url: str, name: str) -> None:
    with Client(url) as client:
        client.delete(name)


def test_the_verdict_is_the_first_line(run: Any, client: Client) -> None:
    fill(client, "s")
    first, _, rest = run("sessions", "s").partition("\n")
    found = client.inspect("s")
    assert first == f"s: {found['verdict']['text']}"
    assert json.loads(rest) == found
    assert json.loads(run("sessions", "s", "--json")) == found
    client.create("new")
    assert run("sessions", "new").startswith("new: no verdict yet\n{")
