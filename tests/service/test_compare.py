"""`okl compare`: what it prints is what sessions of a service come to; what it saves needs nothing else."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console
from typer.testing import CliRunner

from okl.client import Client
from okl.errors import ConfigurationError
from service.cli import app
from service.commands import compare
from service.commands.compare_page import save
from service.commands.contestants import MOST, Contestant, names_of, specs_of, usual
from service.commands.recording import RecordedRow, Selection, look_through

ROWS = 130
QUIET = Console(quiet=True)


def stream(path: Path, rows: int = ROWS, *, kind: str = "labels") -> Path:
    rng = random.Random(7)
    lines = ["a,b,colour,y"]
    for i in range(rows):
        a, b = rng.random(), rng.random()
        truths = {
            "labels": "high" if a + b > 1.0 else "low",
            "classes": "xyz"[int(3 * a)],
            "numbers": f"{10.0 * a + b:.4f}",
        }
        lines.append(f"{a:.4f},{b:.4f},{('red', 'green', '')[i % 3]},{truths[kind]}")
    path.write_text("\n".join(lines) + "\n")
    return path


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result.output


@pytest.mark.each
@pytest.mark.parametrize("kind", ["labels", "classes", "numbers"])
@pytest.mark.parametrize("delay", [0, 5])
def test_each_does_what_a_session_of_a_service_does(client: Client, tmp_path: Path, kind: str, delay: int) -> None:
    path = stream(tmp_path / "s.csv", kind=kind)
    learners = {"labels": ["auto", "majority", "pomdr"], "classes": ["auto", "frequencies"], "numbers": ["auto", "ons"]}
    compared = compare.compare(QUIET, path, Selection("y"), learners[kind], delay=delay)
    arguments = ["replay", str(path), "--label", "y", "--url", client.url, "--delay", str(delay)]
    assert len(compared.contestants) == len(learners[kind])
    for one in compared.contestants:
        named = [] if one.name == "auto" else ["--learner", one.name]
        assert CliRunner().invoke(app, [*arguments, "--session", one.name, *named]).exit_code == 0
        found, tally = client.inspect(one.name), one.tally
        metrics, told = found["metrics"], client.history(one.name)
        assert tally.rounds == metrics["rounds"] == ROWS
        assert tally.loss == pytest.approx(metrics["loss"])
        assert tally.mean_error is not None
        error = metrics["mistake_rate"] if one.is_classifier else metrics["rmse"] ** 2
        assert tally.mean_error == pytest.approx(error)
        assert one.stored == found["describe"]["dictionary"]
        assert one.verdict in (found["verdict"]["text"], "a trivial forecaster")
        assert one.view is not None
        for column in ("t", "total_error", "window_error", "window_rival_error", "window_loss"):
            assert one.view.points[column] == pytest.approx(told["points"][column]), column


@pytest.mark.parametrize("kind", ["labels", "classes", "numbers"])
def test_without_learners_some_that_fit_are_taken(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    played, kept = compare.compare, []

    def keeping(*arguments: Any, **named: Any) -> compare.Compared:
        kept.append(played(*arguments, **named))
        return kept[-1]

    monkeypatch.setattr(compare, "compare", keeping)
    told = run(stream(tmp_path / "s.csv", 60, kind=kind), "--label", "y", "--out", tmp_path / "out")
    for spec in usual(look_through(tmp_path / "s.csv", Selection("y"))):
        assert spec["kind"] in told
    assert "60 of 60 rows" in told
    assert ("RMSE" if kind == "numbers" else "mistake") in told
    (compared,) = kept
    assert [one.refusal for one in compared.contestants if one.refusal] == []
    errors = [one.tally.mean_error or 0.0 for one in compared.contestants]
    assert errors == sorted(errors)
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == ["compare.html", "compare.png", "compare.svg"]


@pytest.fixture
def no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "find_spec", lambda _: None)


@pytest.mark.usefixtures("no_figure")
def test_one_that_fails_stops_no_other(tmp_path: Path) -> None:
    path = stream(tmp_path / "s.csv", kind="numbers")
    learners = ("mean", "aioli", "oracle", "{}", "[3]", '{"kind": "kons", "config": {"budget": 3}}')
    options = [part for learner in learners for part in ("--learner", learner)]
    told = " ".join(run(path, "--label", "y", "--out", tmp_path, *options).split())
    for reason in (
        "with this config takes labels, not numbers",
        "unknown learner kind 'oracle'",
        "config.budget: is unknown",
    ):
        assert reason in told
    assert "trivial forecaster" in told


def test_if_all_fail_nothing_is_saved(tmp_path: Path) -> None:
    path, out = stream(tmp_path / "s.csv", kind="numbers"), tmp_path / "out"
    told = " ".join(run(path, "--label", "y", "--out", out, "--learner", "aioli", code=1).split())
    assert "takes labels" in told
    assert "nothing is saved" in told
    assert not out.exists()


@pytest.mark.usefixtures("no_figure")
def test_if_all_fail_the_errors_keep_their_name(tmp_path: Path) -> None:
    path = stream(tmp_path / "s.csv", kind="labels")
    told = run(path, "--label", "y", "--learner", '{"kind": "pomdr", "config": {"radius": 1}}', code=1)
    assert "mistake rate" in told
    assert "RMSE" not in told
    assert "\npomdr: config.radius: is unknown" in told


def test_one_that_fails_in_the_middle_says_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here by its memory: `kons` grows with every round."""
    monkeypatch.setenv("OKL_SESSION_BYTES", "100000")
    path = stream(tmp_path / "s.csv", kind="numbers")
    compared = compare.compare(QUIET, path, Selection("y"), ["kons", "mean"])
    best, worst = compared.contestants
    assert (best.name, best.rounds, best.refusal) == ("mean", ROWS, None)
    assert worst.refusal is not None
    assert re.match(r"after \d+0 rounds: The learner of 'kons' takes \d+ bytes, the cap is 100000", worst.refusal)


@pytest.mark.usefixtures("no_figure")
def test_the_first_rows_alone(tmp_path: Path) -> None:
    path = stream(tmp_path / "s.csv", 160)
    told = run(path, "--label", "y", "--out", tmp_path, "--rows", 130, "--learner", "majority", "--drop", "colour")
    assert "130 of 130 rows" in told
    assert look_through(path, Selection("y", rows=130)).count == 130


class Page(HTMLParser):
    """What a page has: its elements, their addresses, the cells of its table."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.cells: list[str] = []
        self._is_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._is_cell = tag in ("td", "th")
        if self._is_cell:
            self.cells.append("")
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        if self._is_cell:
            self.cells[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._is_cell = False


def test_the_page_needs_nothing_and_says_what_it_was_given(tmp_path: Path) -> None:
    """Names and reasons are no markup, and no mathematics."""
    path = stream(tmp_path / "<b>$s$.csv", 40)
    learners = ["majority", '{"kind": "<script>alert(1)</script>$x^$"}']
    compared = compare.compare(QUIET, path, Selection("y"), learners)
    compared.contestants[0].name = "<i>$\\frac$"
    save(compared, tmp_path)
    page = Page()
    page.feed(text := (tmp_path / "compare.html").read_text())
    assert page.tags & {"script", "link", "img", "iframe", "object", "i", "b"} == set()
    assert [address for address in page.addresses if not address.startswith("#")] == []
    assert "<i>$\\frac$" in page.cells
    assert any("<script>alert(1)</script>" in cell for cell in page.cells)
    assert "prefers-color-scheme: dark" in text
    assert "currentColor" in text
    assert not re.search(r"(fill|stroke): (#000000|#010203|black|white)", text)
    assert ElementTree.parse(tmp_path / "compare.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_file_gives_the_same_pictures(tmp_path: Path) -> None:
    compared = compare.compare(QUIET, stream(tmp_path / "s.csv", 40), Selection("y"), ["majority"])
    contents = []
    for _ in range(2):
        contents.append([path.read_bytes() for path in save(compared, tmp_path)])
    assert contents[0] == contents[1]


@pytest.mark.usefixtures("no_figure")
def test_without_matplotlib_there_is_the_table_and_a_line(tmp_path: Path) -> None:
    told = run(stream(tmp_path / "s.csv", 40), "--label", "y", "--out", tmp_path, "--learner", "majority")
    assert "majority" in told
    assert "pip install matplotlib" in told
    assert list(tmp_path.glob("compare*")) == []


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    path = stream(tmp_path / "s.csv", 40)
    assert "cannot be written" in " ".join(
        run(path, "--label", "y", "--learner", "majority", "--out", path / "below", code=2).split()
    )


@pytest.mark.parametrize("times", [1, 2])
def test_interrupted_it_prints_what_was_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The rows under way are played by all; pressed twice, it ends at once."""
    play, played = Contestant.play, [0]

    def interrupted(one: Contestant, rows: Sequence[RecordedRow]) -> None:
        played[0] += 1
        if played[0] == 3:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
        play(one, rows)

    monkeypatch.setattr(Contestant, "play", interrupted)
    path = stream(tmp_path / "s.csv", 1000)
    learners = ("--learner", "majority", "--learner", "last-label")
    told = run(path, "--label", "y", "--out", tmp_path, *learners, code=130)
    assert ("200 of 1,000 rows" in told) == (times == 1)
    assert ("majority" in told) == (times == 1)
    assert list(tmp_path.glob("compare*")) == []


def test_a_learner_is_a_kind_a_spec_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "learners.json"
    path.write_text(json.dumps([{"kind": "pomdr", "config": {"budget": 40}}, "mean"]))
    found = specs_of([" auto ", '{"kind": "pomdr"}', str(path)])
    pomdr: dict[str, Any] = {"kind": "pomdr", "config": {"budget": 40}}
    assert found == [{"kind": "auto"}, {"kind": "pomdr"}, pomdr, {"kind": "mean"}]
    assert names_of(found) == ["auto", "pomdr", 'pomdr {"budget": 40}', "mean"]
    assert names_of([{"kind": "mean"}] * 3) == ["mean", "mean #2", "mean #3"]


@pytest.mark.parametrize(
    "option", ["{", "[" * 100_000, json.dumps(["mean"] * (MOST + 1))], ids=["cut", "nested", "many"]
)
def test_what_is_no_learner(option: str) -> None:
    with pytest.raises(ConfigurationError):
        specs_of([option])


def test_help_imports_no_learner() -> None:
    """`okl --help` is to be there at once."""
    program = "import sys, service.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert "numpy" not in found
    light = {"address", "consume", "keys_app", "moves", "options", "outcome", "plain_group", "stores", "terminal"}
    commands = {name.removeprefix("service.commands.") for name in found if name.startswith("service.commands.")}
    assert commands <= light
