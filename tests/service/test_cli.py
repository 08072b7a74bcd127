"""The command line against a real service: what it prints, how it ends."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from okl.client import Client
from service import __version__
from service.cli import app
from service.commands.replay import Scored
from tests.service.definitions import EXACT, MEAN

ROWS = 250
HEADER = "width,wet,colour,class"


@pytest.fixture
def okl(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.setenv("OKL_URL", url)
    monkeypatch.setenv("COLUMNS", "200")
    runner = CliRunner()

    def run(*arguments: str | Path, code: int = 0) -> str:
        result: Result = runner.invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == code, (result.output, result.exception)
        assert "Traceback" not in result.output
        return result.output

    return run


def lines(count: int, start: int = 0) -> list[str]:
    colours = ("red", "green", "blue")
    return [
        f"{i % 7 / 7},{'true' if i % 2 else 'FALSE'},{colours[i % 3]},{'g' if i % 7 > 3 else 'h'}"
        for i in range(start, start + count)
    ]


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "stream.csv"
    path.write_text("\n".join([HEADER, *lines(ROWS)]) + "\n")
    return path


def test_version(okl) -> None:
    assert okl("version").strip() == __version__


def test_version_as_an_option(okl) -> None:
    assert okl("--version") == okl("version")


def test_version_tells_what_computes(okl) -> None:
    version, arithmetic = okl("version", "--verbose").splitlines()
    assert version == __version__
    assert re.match(r"python [\d.]+, numpy \d.*openblas", arithmetic)


def test_sessions_are_listed_inspected_and_deleted(okl, client: Client) -> None:
    for name in ("a", "b"):
        client.create(name, MEAN, **EXACT)
    client.update("a", 1.0, x=[1.0])
    client.predict("a", [1.0])
    listed = okl("sessions")
    assert re.search(r"a\s+│\s+mean\s+│\s+1\s+│\s+1\s", listed)
    assert '"warming_up": false' in okl("sessions", "a")
    okl("sessions", "a", "--delete")
    assert [session["name"] for session in client.sessions()] == ["b"]
    for arguments in (("sessions", "a"), ("sessions", "a", "--delete"), ("watch", "a", "--once")):
        told = okl(*arguments, code=1)
        assert told == "Session not found: There is no session 'a'; `okl sessions` lists those of a service.\n"


@pytest.mark.parametrize("name", ["nobody", "a[/b]c", "[red]", "../x"])
def test_what_is_not_there_is_told_in_a_line(okl, name: str) -> None:
    """Brackets in a message are no markup."""
    told = okl("sessions", name, code=1)
    assert told.startswith(("Session not found: ", "Invalid session name: ", "No such resource: "))
    assert len(told.splitlines()) == 1


def test_nobody_listens(okl) -> None:
    assert "okl serve" in okl("sessions", "--url", "http://127.0.0.1:9", code=1)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_service_is_looked_for_where_it_listens(
    okl, client: Client, url: str, csv: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.delenv("OKL_URL")
    monkeypatch.setenv("OKL_HOST", host)
    monkeypatch.setenv("OKL_PORT", url.rpartition(":")[2])
    okl("replay", csv, "--session", "s", "--label", "class")
    assert " s " in okl("sessions")


def test_a_free_port_is_known_to_nobody_else(okl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OKL_URL")
    monkeypatch.setenv("OKL_PORT", "0")
    assert "--url" in okl("sessions", code=2)


@pytest.mark.parametrize(
    ("learner", "told"),
    [
        ("pomdrr", "did you mean `pomdr`? Known: "),
        ('{"kind": ["mean"]}', "/learner/kind"),
        ("{}", "/learner/kind"),
        ('{"kind": "pomdr", "config": {"buget": 1}}', "did you mean `budget`? Known: "),
    ],
)
def test_a_wrong_learner_is_told_with_the_right_one(okl, csv: Path, learner: str, told: str) -> None:
    assert told in okl("replay", csv, "--session", "new", "--label", "class", "--learner", learner, code=1)


def test_a_wrong_learner_is_told_once(okl, csv: Path) -> None:
    told = okl("replay", csv, "--session", "new", "--label", "class", "--learner", "svm", code=1)
    assert told.startswith("Unknown learner: There is no kind 'svm'; ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["serve", "--workers", "0"], "'--workers': must be at least 1"),
        (["serve", "--port", "99999"], "'--port': must be at most 65535"),
        (["keys", "create", "k", "--scope", "none"], "'--scope': 'none' is not one of 'read', 'write', 'admin'."),
    ],
)
def test_an_option_with_a_wrong_value(okl, arguments: list[str], told: str) -> None:
    assert okl(*arguments, code=2).endswith(f"Error: Invalid value for {told}\n")


def test_replay_feeds_a_file(okl, client: Client, csv: Path) -> None:
    told = okl("replay", csv, "--session", "s", "--label", "class")
    assert f"s: {ROWS} rounds, mistake rate" in told
    found = client.inspect("s")
    assert found["t"] == ROWS
    assert found["settings"]["labels"] == ["g", "h"]
    assert sorted(one["type"] for one in found["fields"]) == ["boolean", "category", "number"]
    assert found["metrics"]["mistake_rate"] < 0.45


def test_replay_goes_on_where_it_stopped(okl, client: Client, csv: Path) -> None:
    """An interrupted replay, one more of the whole, and one of a longer file: each row is learned once."""
    arguments = ("--session", "s", "--label", "class", "--batch", "40")
    okl("replay", csv, *arguments)
    okl("replay", csv, *arguments)
    assert client.inspect("s")["t"] == ROWS
    csv.write_text("\n".join([HEADER, *lines(ROWS + 50)]) + "\n")
    okl("replay", csv, *arguments)
    assert client.inspect("s")["t"] == ROWS + 50
    one_by_one = client.inspect("s")["metrics"]
    okl("replay", csv, "--session", "whole", "--label", "class", "--batch", "1000")
    assert client.inspect("whole")["metrics"] == pytest.approx(one_by_one)


def test_replay_from_a_row_sends_nothing_twice(okl, client: Client, csv: Path) -> None:
    arguments = ("--session", "s", "--label", "class")
    okl("replay", csv, *arguments)
    okl("replay", csv, *arguments, "--start", "100")
    assert client.inspect("s")["t"] == ROWS


def test_replay_of_numbers_takes_their_range(okl, client: Client, tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("x,y\n" + "".join(f"{i % 5},{10 + i % 5}\n" for i in range(150)))
    assert "RMSE" in okl("replay", path, "--session", "s", "--label", "y", "--learner", "mean")
    assert client.inspect("s")["settings"]["y_range"] == [10.0, 14.0]


def test_replay_takes_the_target_of_the_config(okl, client: Client, tmp_path: Path) -> None:
    """By default kernel-ogd takes labels; told to minimise squared loss it takes numbers."""
    path = tmp_path / "numbers.csv"
    path.write_text("x,y\n" + "".join(f"{i % 5},{10 + i % 5}\n" for i in range(150)))
    learner = '{"kind": "kernel-ogd", "config": {"loss": "squared"}}'
    assert "RMSE" in okl("replay", path, "--session", "s", "--label", "y", "--learner", learner)
    assert client.inspect("s")["t"] == 150


@pytest.mark.parametrize(
    ("learner", "told"),
    [
        (None, "RMSE"),
        ("auto", "RMSE"),
        ('{"kind": "auto", "config": {"budget": 50}}', "RMSE"),
        ("pool", "RMSE"),
        ('{"kind": "auto", "config": {"truth": "classes"}}', "mistake rate"),
    ],
)
def test_replay_chooses_what_a_learner_of_either_learns(
    okl, client: Client, tmp_path: Path, learner: str | None, told: str
) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("x,y\n" + "".join(f"{i % 5},{10 + i % 5}\n" for i in range(150)))
    named = () if learner is None else ("--learner", learner)
    output = okl("replay", path, "--session", "s", "--label", "y", *named)
    assert told in output
    taken_for = "numbers from 10 to 14" if told == "RMSE" else "5 labels"
    assert output.splitlines()[0] == f"s: created, for {taken_for}"
    assert (client.inspect("s")["labels"] is None) == (told == "RMSE")
    if learner == "auto":
        okl("replay", path, "--session", "default", "--label", "y")
        found = [client.inspect(name)["metrics"] for name in ("s", "default")]
        assert found[0] == found[1]


def test_replay_of_labels_that_python_calls_equal(okl, client: Client, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("x,y\n" + "".join(f"0,{('true', '1', '0')[i % 3]}\n" for i in range(30)))
    okl("replay", path, "--session", "s", "--label", "y")
    found = client.inspect("s")
    assert (found["t"], str(found["settings"]["labels"])) == (30, "[True, 0, 1]")
    scored = Scored()
    scored.add(True, {"label": 1})
    scored.add(1.0, {"label": 1})
    assert (scored.rows, scored.total) == (2, 1)


def test_replay_into_a_session_of_lists(okl, client: Client, tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("a,b,y\n1,2,3\n4,5,6\n")
    client.create("s", MEAN, dim=2)
    okl("replay", path, "--session", "s", "--label", "y")
    assert client.inspect("s")["t"] == 2


FILES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "no rows"),
    "a header alone": (b"a,y\n", "no rows"),
    "no such column": (b"a,b\n1,2\n", "no column 'y'"),
    "semicolons": (b"a;y\n1;2\n", "separates its values by ';'; write it with commas"),
    "tabs": (b"a\ty\n1\t2\n", "separates its values by"),
    "a short line": (b"a,y\n1\n", "line 2"),
    "a long line": (b"a,y\n1,2\n1,2,3\n", "line 3"),
    "no UTF-8": (b"a,y\n\xff,1\n", "UTF-8"),
    "no truth": (b"a,y\n1,\n2,3\n", "empty"),
    "one truth": (b"a,y\n1,5\n2,5\n", "two different"),
}


@pytest.mark.parametrize(("content", "told"), FILES.values(), ids=FILES)
@pytest.mark.parametrize("learner", ["mean", "pomdr"])
def test_a_file_that_is_no_stream_is_told_in_a_line(
    okl, client: Client, tmp_path: Path, content: bytes, told: str, learner: str
) -> None:
    path = tmp_path / "[bold].csv"
    path.write_bytes(content)
    output = okl("replay", path, "--session", "s", "--label", "y", "--learner", learner, code=2)
    assert told in output
    assert client.sessions() == []


@pytest.mark.parametrize("learner", ["mean", "pomdr"])
def test_three_classes_are_too_many_for_a_learner_of_two(okl, client: Client, tmp_path: Path, learner: str) -> None:
    path = tmp_path / "classes.csv"
    path.write_text("a,y\n1,r\n2,g\n3,b\n")
    assert "takes two" in okl("replay", path, "--session", "s", "--label", "y", "--learner", learner, code=1)
    assert client.sessions() == []


def test_whatever_a_cell_says_is_a_value(okl, client: Client, tmp_path: Path) -> None:
    """Text where numbers were, numbers that are none, and nothing."""
    path = tmp_path / "cells.csv"
    path.write_text(
        "a,b,y\n" + "".join(f"{('nan', '1e999', '', 'text', i)[i % 5]},words {i},{i % 3}.5\n" for i in range(60))
    )
    assert "RMSE" in okl("replay", path, "--session", "s", "--label", "y")
    assert [one["type"] for one in client.inspect("s")["fields"]] == ["category", "text"]


@pytest.mark.parametrize(
    ("learner", "code"),
    [("oracle", 1), ("{", 2), ("{}", 1), ('{"kind": "oracle"}', 1), ('{"kind": "pomdr", "config": {"budget": 1}}', 1)],
)
def test_a_learner_that_is_none(okl, client: Client, csv: Path, learner: str, code: int) -> None:
    okl("replay", csv, "--session", "s", "--label", "class", "--learner", learner, code=code)
    assert client.sessions() == []


@pytest.mark.parametrize(
    "arguments", [["sessions", "--help"], ["replay", "--help"], ["serve", "--help"], ["demo", "--help"]]
)
def test_help(okl, arguments: list[str]) -> None:
    assert "Usage" in okl(*arguments)


HOSTILE = "\x1b[31mred\x1b]0;title\x07\x9b31m\u202e"
"""Would colour a terminal, rename its window, and turn the text round."""


def test_what_others_named_does_not_reach_the_terminal_as_a_command(okl, client: Client, tmp_path: Path) -> None:
    label = f"truth{HOSTILE}"
    path = tmp_path / f"rows{HOSTILE}.csv"
    path.write_text(f"a,{label}\n" + "".join(f"{i},{'no' if i % 2 else f'yes{HOSTILE}'}\n" for i in range(20)))
    printed = [
        okl("compare", path, "--label", label, "--learner", "majority", "--out", tmp_path / "out"),
        okl("replay", path, "--session", "s", "--label", label),
        okl("replay", path, "--session", "s", "--label", "none", code=2),
        okl("sessions", "s"),
        okl("sessions", "s", "--json"),
        okl("watch", "s", "--once"),
    ]
    for output in printed:
        assert not [mark for mark in output if mark != "\n" and not mark.isprintable()]
    assert json.loads(printed[-2])["labels"] == ["no", f"yes{HOSTILE}"]
