"""The column of the truths in a file: numbers or labels, and what a word among numbers is taken for, in both commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import okl
from okl.client import Client
from okl.errors import ConfigurationError
from service.cli import app
from service.commands.compare import compare
from service.commands.recording import GAPS, Selection, look_through

Run = Callable[..., str]

NUMBERS = [f"{i}.5" for i in range(60)]


def stream(folder: Path, truths: Sequence[str]) -> Path:
    path = folder / "s.csv"
    path.write_text("a,y\n" + "".join(f"{i % 7},{truth}\n" for i, truth in enumerate(truths)))
    return path


def mixed(*words: str, numbers: Sequence[str] = NUMBERS, row: int = 48) -> list[str]:
    return [*numbers[:row], *words, *numbers[row:]]


@pytest.fixture(params=["replay", "compare"])
def run(request: pytest.FixtureRequest, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("OKL_URL", client.url)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("service.commands.compare.find_spec", lambda _: None)
    options = {"replay": ["--session", "s"], "compare": ["--learner", "frequencies", "--out", str(tmp_path)]}

    def run(path: Path, code: int = 0) -> str:
        result = CliRunner().invoke(app, [request.param, str(path), "--label", "y", *options[request.param]])
        assert result.exit_code == code, (result.output, result.exception)
        return " ".join(result.output.split())

    return run


@pytest.mark.parametrize("word", ["NA", "NaN", "null", "?"])
def test_a_missing_number_is_refused_with_its_line(run: Run, client: Client, tmp_path: Path, word: str) -> None:
    told = run(stream(tmp_path, mixed(word)), code=2)
    assert f"s.csv, line 50: the label column has '{word}', but numbers elsewhere. Remove the lines" in told
    assert client.sessions() == []


@pytest.mark.parametrize("word", [*sorted(GAPS), "inf", "-Infinity", "1e999"])
def test_what_says_that_a_number_is_missing(tmp_path: Path, word: str) -> None:
    for text in (word, word.upper(), f" {word} "):
        with pytest.raises(ConfigurationError, match=r"line 50: .*numbers elsewhere"):
            look_through(stream(tmp_path, mixed(text, "NA", *["?"] * 100)), Selection("y"))


def test_the_line_counts_blank_lines_and_line_ends_in_cells(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text('a,y\n\n"x\ny",1\n\nz,NA\nz,2\n')
    with pytest.raises(ConfigurationError, match=r"line 6: .*'NA'"):
        look_through(path, Selection("y"))


def test_one_word_among_many_numbers_makes_labels_and_is_told(run: Run, tmp_path: Path) -> None:
    assert "60 labels, not numbers, since line 50 has 'x'" in run(stream(tmp_path, mixed("x", numbers=NUMBERS[:59])))


def test_too_many_labels_are_explained_by_the_word(run: Run, tmp_path: Path) -> None:
    truths = mixed("NA", "x", numbers=[str(i) for i in range(1100)])
    told = run(stream(tmp_path, truths), code=2)
    assert "over 1000 values, too many for labels. They are not taken for numbers since line 50 has 'NA'" in told


@pytest.mark.parametrize(
    ("truths", "told"),
    [
        (["yes", "no", "NA"], "3 labels"),
        (["1", "2", "x"], "3 labels"),
        (["true", "1", "0"], "3 labels"),
        ([*NUMBERS[:20], *[f"code {i}" for i in range(30)]], "50 labels"),
        (["1", "0"], "2 labels"),
        (["1", "0", "2"], "numbers from 0 to 2"),
    ],
)
def test_other_truths_are_told_without_a_reason(tmp_path: Path, truths: list[str], told: str) -> None:
    assert look_through(stream(tmp_path, truths * 2), Selection("y")).told == told


def test_numbers_that_a_learner_takes_for_labels_are_told_as_such(tmp_path: Path) -> None:
    with (console := Console(width=100)).capture() as output:
        compare(console, stream(tmp_path, ["0", "1", "2"] * 5), Selection("y"), ["frequencies"])
    assert output.get().splitlines()[0] == "s.csv: y: 3 labels"


def test_a_missing_number_in_memory() -> None:
    rows, truths = [[float(i)] for i in range(6)], [0.5, 1.5, "NA", 2.5, 3.5, 4.5]
    with pytest.raises(ConfigurationError, match="Truth 2 is 'NA'"):
        okl.compare(rows, truths, ["last-label"])
    assert okl.compare(rows, truths, ["frequencies"], are_labels=True).error_name == "mistake rate"
