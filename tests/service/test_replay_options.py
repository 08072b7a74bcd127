"""`okl replay` with its options: what is sent, what is written, and that a killed one goes on without learning twice."""

from __future__ import annotations

import csv
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from okl.client import Client
from okl.errors import ConfigurationError, SessionNotFound
from service.cli import app
from service.commands.predictions_file import HEADER, PredictionsFile
from service.commands.recording import Selection, look_through
from tests.command import okl, serving

ROWS = 60


@pytest.fixture
def run(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("OKL_URL", url)

    def run(*arguments: object, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["replay", *map(str, arguments)])
        assert result.exit_code == code, (result.output, result.exception)
        assert "Traceback" not in result.output
        return result.output

    return run


def stream(path: Path, rows: int = ROWS, *, labels: bool = True) -> Path:
    rng = random.Random(5)
    lines = ["a,b,note,y"]
    for i in range(rows):
        a, b = rng.random(), rng.random()
        truth = ("high" if a + b > 1.0 else "low") if labels else f"{a + b:.6f}"
        lines.append(f"{a:.4f},{'' if i % 4 == 3 else f'{b:.4f}'},n{i},{truth}")
    path.write_text("\n".join(lines) + "\n")
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.each
@pytest.mark.parametrize("delay", [0, 3, 1000])
@pytest.mark.parametrize("labels", [True, False])
def test_what_is_written_is_what_was_predicted(run, client: Client, tmp_path: Path, delay: int, labels: bool) -> None:
    """Held to the same calls made by hand: a truth is told when `delay` more rows were predicted."""
    path, out = stream(tmp_path / "s.csv", labels=labels), tmp_path / "p.csv"
    told = ("low", "high") if labels else None
    settings: dict[str, Any] = {"labels": sorted(told)} if told else {}
    client.create("hand", interval=0.8, **settings)
    client.create("s", interval=0.8, **settings)
    run(path, "--session", "s", "--label", "y", "--out", out, "--delay", delay)
    rows = list(look_through(path, Selection("y")).rows())
    wanted: list[dict[str, Any]] = []
    for i, row in enumerate(rows):
        if i > delay:
            client.update("hand", rows[i - delay - 1].y, id=str(i - delay - 1))
        wanted.append(client.predict("hand", row.x, id=str(i)))
    for i in range(max(0, len(rows) - delay - 1), len(rows)):
        client.update("hand", rows[i].y, id=str(i))
    found = read(out)
    assert [row["row"] for row in found] == [str(i) for i in range(ROWS)]
    assert [row["truth"] for row in found] == [str(row.y) for row in rows]
    for row, answer in zip(found, wanted, strict=True):
        told_now = answer.get("label", answer.get("value"))
        assert row["prediction"] == ("" if told_now is None else str(told_now))
        for name in ("probability", "low", "high"):
            number = answer.get(name)
            assert row[name] == ("" if number is None else str(number)), name
    assert client.inspect("s")["metrics"] == client.inspect("hand")["metrics"]
    assert client.inspect("s")["waiting"] == 0


def test_a_file_that_has_grown_is_gone_on_with(run, client: Client, tmp_path: Path) -> None:
    path, out = stream(tmp_path / "s.csv", 30), tmp_path / "p.csv"
    arguments = (path, "--session", "s", "--label", "y", "--out", out, "--delay", 4)
    run(*arguments)
    run(*arguments)
    assert len(read(out)) == 30
    stream(path, 50)
    run(*arguments)
    assert [row["row"] for row in read(out)] == [str(i) for i in range(50)]
    assert client.inspect("s")["t"] == 50
    run(*arguments, "--start", 10)
    assert client.inspect("s")["t"] == 50
    assert len(read(out)) == 50


def test_a_batch_that_is_sent_again_is_not_learned_again(run, client: Client, tmp_path: Path) -> None:
    arguments = (stream(tmp_path / "s.csv", 30), "--session", "s", "--label", "y", "--batch", 20)
    for _ in "12":
        run(*arguments, "--start", 0)
    assert client.inspect("s")["t"] == 30
    stream(tmp_path / "s.csv", 50)
    run(*arguments, "--start", 30)
    assert client.inspect("s")["t"] == 50


@pytest.mark.parametrize("options", [(), ("--delay", 3), ("--warmup", 5)])
def test_a_file_that_was_learned_whole_is_done(run, client: Client, tmp_path: Path, options: tuple[Any, ...]) -> None:
    arguments = (stream(tmp_path / "s.csv"), "--session", "s", "--label", "y", *options)
    run(*arguments)
    told = run(*arguments)
    assert f"s: nothing to send: all {ROWS} rows of the file were learned before" in told
    assert "created" not in told
    assert client.inspect("s")["t"] == ROWS


@pytest.mark.parametrize("options", [(), ("--delay", 3), ("--warmup", 5)])
def test_a_session_with_more_rounds_than_rows_has_learned_another_file(
    run, client: Client, tmp_path: Path, options: tuple[Any, ...]
) -> None:
    run(stream(tmp_path / "s.csv"), "--session", "s", "--label", "y")
    short = (stream(tmp_path / "short.csv", 20), "--session", "s", "--label", "y", *options)
    told = " ".join(run(*short, code=2).split())
    assert "Nothing was sent: session 's' has 60 rounds, but the file only 20 rows" in told
    assert "mistake rate" not in told
    run(*short, "--start", 0)
    assert client.inspect("s")["t"] == 80


def test_a_start_behind_the_end_is_wrong(run, client: Client, tmp_path: Path) -> None:
    arguments = (stream(tmp_path / "s.csv"), "--session", "s", "--label", "y")
    assert "the file has only 60 rows" in " ".join(run(*arguments, "--start", ROWS + 1, code=2).split())
    assert client.sessions() == []
    told = run(*arguments, "--start", ROWS)
    assert "nothing to send: the file ends with row 59" in told
    assert "s: 0 rounds" in told


@pytest.mark.parametrize(
    ("settings", "file", "told"),
    [
        ({"labels": ["low", "mid"]}, "labels", "'high' in the label column is none of its labels"),
        ({"labels": ["low", "mid"]}, "many", "over 1000 values"),
        ({"y_range": [0.0, 2.0]}, "labels", "it learns numbers, but the label column has others"),
        ({}, "labels", "'high' in the label column is none of its labels"),
        ({"labels": ["low", "high"]}, "labels", None),
        ({"y_range": [0.0, 2000.0]}, "many", None),
    ],
)
def test_truths_that_a_session_does_not_learn_are_refused_before_any_is_sent(
    run, client: Client, tmp_path: Path, settings: dict[str, Any], file: str, told: str | None
) -> None:
    """Of labels that are collected, those of a session that has learned as many rows."""
    path = stream(tmp_path / "s.csv", ROWS)
    if file == "many":
        path.write_text("a,b,note,y\n" + "".join(f"0.5,{i % 7},n,{i}\n" for i in range(1001)))
    client.create("s", **settings)
    x, t = {"a": 0.5, "b": 0.5, "note": "n"}, 1 if settings else ROWS
    truths = ["low", "mid"] * t if not settings or "labels" in settings else [0.5] * t
    if told is not None:
        client.rounds("s", [x] * t, truths[:t])
    said = " ".join(run(path, "--session", "s", "--label", "y", code=0 if told is None else 2).split())
    assert told is None or "the file does not fit session 's': " in said
    assert told is None or told in said
    assert client.inspect("s")["t"] == (t if told else ROWS if file == "labels" else 1001)


@pytest.mark.parametrize("options", [("--batch", 20), ("--delay", 3)])
def test_rows_that_are_not_the_rounds_stop_it(
    run, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[Any, ...]
) -> None:
    """In the middle another stream feeds the session, or its store comes back with less: both move the round."""
    arguments = (stream(tmp_path / "s.csv", 60), "--session", "s", "--label", "y", *options)
    name = "rounds" if "--batch" in options else "step"
    sent, calls = getattr(Client, name), []

    def send(self: Client, *given: Any, **more: Any) -> Any:
        calls.append(given)
        if len(calls) == 2:
            client.update("s", "low", x={"a": 0.1, "b": 0.1, "note": "n"})
        return sent(self, *given, **more)

    monkeypatch.setattr(Client, name, send)
    assert "its store has lost rounds" in " ".join(run(*arguments, code=1).split())
    assert len(calls) == 2


def test_a_killed_replay_goes_on_and_learns_nothing_twice(run, url: str, client: Client, tmp_path: Path) -> None:
    """Killed again and again in the middle, the rows are those of one that ran through."""
    path, out = stream(tmp_path / "s.csv", 120), tmp_path / "p.csv"
    arguments = (str(path), "--label", "y", "--delay", "7", "--learner", "majority")
    kills = 0
    for until in (30, 70):
        with okl("replay", *arguments, "--session", "s", "--out", str(out), cwd=tmp_path, OKL_URL=url) as process:
            while process.poll() is None and learned(client) < until:
                time.sleep(0.005)
            kills += process.poll() is None
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert kills == 2
    assert not out.exists()
    for session, name in (("s", out), ("through", tmp_path / "q.csv")):
        run(*arguments, "--session", session, "--out", name)
    assert client.inspect("s")["metrics"] == client.inspect("through")["metrics"]
    assert client.inspect("s")["t"] == 120
    assert client.inspect("s")["waiting"] == 0
    assert out.read_text() == (tmp_path / "q.csv").read_text()


@pytest.mark.parametrize("options", [("--batch", "5"), ("--delay", "7")])
def test_a_restart_of_the_service_is_waited_for(tmp_path: Path, options: tuple[str, ...]) -> None:
    path, store = stream(tmp_path / "s.csv", 400), f"sqlite:///{tmp_path}/s.sqlite3"
    arguments = ("replay", str(path), "--label", "y", "--session", "s", "--learner", "majority", *options)
    with serving(store, tmp_path) as (service, url), okl(*arguments, cwd=tmp_path, OKL_URL=url) as process:
        with Client(url) as client:
            while process.poll() is None and learned(client) < 40:
                time.sleep(0.005)
        assert process.poll() is None
        service.send_signal(signal.SIGKILL)
        service.wait()
        time.sleep(0.2)
        with serving(store, tmp_path, port=int(url.rpartition(":")[2])) as (_, again), Client(again) as client:
            _, told = process.communicate(timeout=60)
            assert (process.returncode, told) == (0, "")
            assert client.inspect("s")["t"] == 400
            assert client.inspect("s")["waiting"] == 0


def learned(client: Client) -> int:
    try:
        return client.inspect("s")["t"]
    except SessionNotFound:
        return 0


@pytest.mark.parametrize("options", [(), ("--delay", 2)])
def test_a_warm_up_is_learned_and_not_scored(run, client: Client, tmp_path: Path, options: tuple[Any, ...]) -> None:
    path, out = stream(tmp_path / "s.csv"), tmp_path / "p.csv"
    arguments = (path, "--session", "s", "--label", "y", "--warmup", 50, *options)
    told = run(*arguments, "--out", out)
    found = read(out)
    assert [row["row"] for row in found] == [str(i) for i in range(50, ROWS)]
    rate = sum(row["truth"] != row["prediction"] for row in found) / 10
    assert f"s: {ROWS} rounds; mistake rate {rate:.2%} over the 10 rows after" in told
    assert client.inspect("s")["t"] == ROWS
    assert "no row after the first 50" in run(*arguments)


def test_a_warm_up_of_batches(run, client: Client, tmp_path: Path) -> None:
    path = stream(tmp_path / "s.csv", labels=False)
    told = run(path, "--session", "s", "--label", "y", "--warmup", 50, "--batch", 8)
    errors = [one["error"] for one in client.last_rounds("s", 10)]
    assert f"RMSE {(sum(error**2 for error in errors) / 10) ** 0.5:.4g}"[:-1] in told


def test_columns_are_picked_and_dropped(run, client: Client, tmp_path: Path) -> None:
    path = stream(tmp_path / "s.csv")
    run(path, "--session", "dropped", "--label", "y", "--drop", "note")
    run(path, "--session", "only", "--label", "y", "--only", "b, a")
    for name in ("dropped", "only"):
        assert sorted(client.last_rounds(name, 1)[0]["x"]) == ["a", "b"]
    for wrong in (
        ("--drop", "a", "--only", "b"),
        ("--drop", "c"),
        ("--only", "c"),
        ("--drop", "y"),
        ("--only", "y"),
        ("--drop", "a,b,note"),
        ("--only", ""),
        ("--drop", "a\nb"),
    ):
        run(path, "--session", "wrong", "--label", "y", *wrong, code=2)
    assert {session["name"] for session in client.sessions()} == {"dropped", "only"}


def test_names_with_commas_and_blanks(run, client: Client, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text('"size, in m",  kind , y \n' + "".join(f"{i},{i % 3},{i % 2}\n" for i in range(6)))
    run(path, "--session", "all", "--label", "y")
    run(path, "--session", "dropped", "--label", " y ", "--drop", '"size, in m"')
    run(path, "--session", "only", "--label", "y", "--only", '"size, in m" , kind')
    taken = {name: sorted(client.last_rounds(name, 1)[0]["x"]) for name in ("all", "dropped", "only")}
    assert taken == {"all": ["kind", "size, in m"], "dropped": ["kind"], "only": ["kind", "size, in m"]}


@pytest.mark.parametrize(("fill", "third"), [("none", None), ("previous", "above"), ("0.5", 0.5), ("gone", "gone")])
def test_blanks_are_filled(run, client: Client, tmp_path: Path, fill: str, third: Any) -> None:
    path = stream(tmp_path / "s.csv", 4)
    run(path, "--session", "s", "--label", "y", "--only", "b", "--fill", fill)
    last, above = (one["x"]["b"] for one in client.last_rounds("s", 2))
    assert last == (above if third == "above" else third)


def test_previous_is_that_of_the_file_also_where_it_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("a,b,y\n,1,0\n2,,1\n,,0\n")
    rows = look_through(path, Selection.of("y", drop=None, only=None, fill="previous")).rows()
    assert [row.x for row in rows] == [{"a": None, "b": 1.0}, {"a": 2.0, "b": 1.0}, {"a": 2.0, "b": 1.0}]


def test_ids_follow_from_the_rows_before(tmp_path: Path) -> None:
    """A file that has grown keeps them; another file, or another choice of columns, has others."""
    path = stream(tmp_path / "s.csv", 20)
    short = [row.id for row in look_through(path, Selection("y")).rows()]
    stream(path, 30)
    grown = [row.id for row in look_through(path, Selection("y")).rows()]
    picked = [row.id for row in look_through(path, Selection("y", only=("a",))).rows()]
    path.write_text(path.read_text().replace("n3", "m3"))
    other = [row.id for row in look_through(path, Selection("y")).rows()]
    assert grown[:20] == short
    assert not set(picked) & set(grown)
    assert [a == b for a, b in zip(grown, other, strict=True)] == [i < 3 for i in range(30)]


def test_a_line_without_end_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.commands.recording.MOST_LETTERS", 1000)
    path = tmp_path / "s.csv"
    path.write_text("a,y\n" + "1" * 5000)
    with pytest.raises(ConfigurationError, match="more than 1,000 characters"):
        look_through(path, Selection("y"))


# -- the file of predictions -------------------------------------------------------------------------------------------


def rows_of(path: Path) -> list[str]:
    return [row["row"] for row in read(path)]


def test_a_file_of_predictions_has_whole_lines_only(tmp_path: Path) -> None:
    """Whatever a killed process left of its last line."""
    path, part = tmp_path / "p.csv", tmp_path / "p.csv.part"
    with PredictionsFile(path) as out:
        for i in range(3):
            out.write(i, 'a\nb, "c"', {"label": True, "probability": 0.25})
    whole = path.read_bytes()
    assert not part.exists()
    for end in range(len(whole) + 1):
        path.unlink(missing_ok=True)
        part.write_bytes(whole[:end])
        with PredictionsFile(path) as out:
            for i in range(3):
                out.write(i, 'a\nb, "c"', {"label": True, "probability": 0.25})
        assert path.read_bytes() == whole, end


def test_a_file_of_predictions_is_published_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    with PredictionsFile(path) as out:
        out.write(0, 1.0, {"value": 2.0, "low": 1.0})
        assert not path.exists()
    with suppress(ZeroDivisionError), PredictionsFile(path) as out:
        assert out.next_row == 1
        out.write(0, 1.0, {"value": 2.0})
        out.write(1, 1.0, {"label": "x", "probabilities": [0.2, 0.5, 0.3]})
        assert rows_of(path) == ["0"]
        raise ZeroDivisionError
    assert path.read_text().splitlines() == [",".join(HEADER), "0,1.0,2.0,,1.0,", "1,1.0,x,0.5,,"]


def test_a_pipe_a_device_or_a_link_is_not_replaced(run, client: Client, tmp_path: Path) -> None:
    path, out, link = stream(tmp_path / "s.csv"), tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(out)
    link.symlink_to(tmp_path / "none.csv")
    assert "link is a link" in run(path, "--session", "s", "--label", "y", "--out", link, code=2)
    assert "not the standard output" in run(path, "--session", "s", "--label", "y", "--out", "-", code=2)
    assert link.is_symlink()
    assert "pipe is not a regular file" in run(path, "--session", "s", "--label", "y", "--out", out, code=2)
    assert out.is_fifo()
    assert client.sessions() == []


def test_another_file_is_left_as_it_is(run, client: Client, tmp_path: Path) -> None:
    path, out = stream(tmp_path / "s.csv"), tmp_path / "letter.csv"
    out.write_text("Dear all,\n")
    assert "not a file of predictions" in run(path, "--session", "s", "--label", "y", "--out", out, code=2)
    assert out.read_text() == "Dear all,\n"
    assert [one.name for one in tmp_path.glob("letter*")] == ["letter.csv"]
    assert client.sessions() == []
    run(path, "--session", "s", "--label", "y", "--out", tmp_path / "no" / "folder.csv", code=2)


def test_predictions_of_two_replays_are_not_mixed(run, client: Client, tmp_path: Path) -> None:
    path, out = stream(tmp_path / "s.csv"), tmp_path / "p.csv"
    run(path, "--session", "s", "--label", "y", "--out", out)
    assert "not of one replay" in run(path, "--session", "t", "--label", "y", "--out", out, code=2)
    assert len(read(out)) == ROWS
    stream(path, ROWS + 5)
    told = run(path, "--session", "s", "--label", "y", "--out", tmp_path / "late.csv")
    assert "rows 0 to 59 were learned before" in " ".join(told.split())
    assert rows_of(tmp_path / "late.csv") == [str(i) for i in range(ROWS, ROWS + 5)]
