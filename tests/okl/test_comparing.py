"""`okl.compare`: what each learner does is what a session of a service does with the same rounds."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from rich.console import Console
from sklearn.metrics import log_loss

import okl
from okl import errors
from okl.client import Client
from service.commands import compare as command
from service.commands.recording import Selection

N = 130
RNG = random.Random(3)
ROWS = [{"a": RNG.random(), "b": RNG.random(), "colour": ("red", "green", None)[i % 3]} for i in range(N)]
LABELS = ["high" if row["a"] + row["b"] > 1.0 else "low" for row in ROWS]
NUMBERS = [10.0 * row["a"] + row["b"] for row in ROWS]


@pytest.mark.parametrize("truths", [LABELS, NUMBERS], ids=["labels", "numbers"])
def test_it_is_what_a_session_does(client: Client, truths: list[Any]) -> None:
    learner = "nystrom-aioli" if truths is LABELS else "nystrom-ridge"
    line = okl.compare(ROWS, truths, [learner])[0]
    settings = {"labels": sorted(set(LABELS))} if truths is LABELS else {"y_range": [min(truths), max(truths)]}
    session = client.session("s", learner, **settings)
    played = session.play(ROWS, truths)
    assert line.rounds == N
    assert line.loss == pytest.approx(played.loss / N)
    if truths is LABELS:
        assert played.mistakes is not None
        assert line.error == pytest.approx(played.mistakes / N)
        assert line.log_loss == pytest.approx(log_loss(truths, played.probabilities, labels=["high", "low"]))
    else:
        assert line.error == pytest.approx(np.sqrt(np.mean((np.array(played.values) - truths) ** 2)))
        assert line.log_loss is None
    assert line.points == session.describe()["describe"]["dictionary"]
    assert line.seconds > 0.0


def test_it_is_what_the_command_does_with_a_file(tmp_path: Path) -> None:
    pd.DataFrame(ROWS).assign(y=LABELS).to_csv(tmp_path / "s.csv", index=False)
    for delay in (0, 4):
        learners = ["pomdr", "majority", '{"kind": "auto"}']
        found = command.compare(Console(quiet=True), tmp_path / "s.csv", Selection("y"), learners, delay=delay)
        lines = okl.compare(pd.DataFrame(ROWS), LABELS, [*learners[:2], json.loads(learners[2])], delay=delay)
        told = [(one.name, one.error, one.loss, one.points) for one in map(command.line_of, found.contestants)]
        assert [(one.name, one.error, one.loss, one.points) for one in lines] == told


def test_the_log_loss_of_classes_is_their_loss() -> None:
    truths = ["xyz"[int(3 * row["a"])] for row in ROWS]
    for delay in (0, 3):
        for line in okl.compare(ROWS, truths, ["auto", "frequencies"], delay=delay):
            assert line.log_loss == pytest.approx(line.loss)


def test_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    found = okl.compare(pl.DataFrame(ROWS), LABELS, ["majority", "aioli", "oracle", "ons"], progress=True)
    assert "100%" in capsys.readouterr().out
    assert (len(found), found.error_name, found[-1].name) == (4, "mistake rate", "oracle")
    assert found.best is found[0]
    assert found.best.name != "majority"
    text = str(found)
    assert text == repr(found)
    assert text.splitlines()[0].split() == (
        ["learner", "mistake", "rate", "last", "500", "loss", "log-loss", "rounds/s", "stored", "memory", "verdict"]
    )
    assert "unknown learner kind 'oracle'" in text
    assert [line.split()[0] for line in text.splitlines()[1:]] == [line.name for line in found]
    t, errors_ = found.curve("aioli")
    assert (t[-1], errors_[-1]) == (N, pytest.approx(found["aioli"].error))
    assert found.curve("aioli", windowed=True)[1].shape == t.shape
    frame = found.to_frame()
    assert isinstance(frame, pl.DataFrame)
    assert frame["learner"].to_list() == [line.name for line in found]
    with pytest.raises(KeyError, match="no learner 'nobody'"):
        found.curve("nobody")
    nobody = okl.compare(ROWS, LABELS, [{"kind": "<script>"}])
    assert nobody.error_name == "mistake rate"
    shown = nobody._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    assert isinstance(okl.compare(np.zeros((4, 1)), [0, 1, 0, 1], ["mean"]).to_frame()["error"], np.ndarray)


def test_without_learners_some_that_fit_are_taken() -> None:
    assert {"auto", "majority", "pomdr"} < {line.name for line in okl.compare(ROWS[:30], LABELS[:30])}
    assert {"auto", "mean", "ons"} < {line.name for line in okl.compare(iter(ROWS[:30]), NUMBERS[:30])}


def test_what_the_truths_are_may_be_said() -> None:
    digits = [i % 3 for i in range(30)]
    assert okl.compare(ROWS[:30], digits, ["auto"]).error_name == "RMSE"
    assert okl.compare(ROWS[:30], digits, ["auto"], are_labels=True).error_name == "mistake rate"
    assert okl.compare(ROWS[:30], [i % 2 for i in digits], ["auto"], are_labels=False).error_name == "RMSE"
    with pytest.raises(errors.ConfigurationError, match="not all numbers"):
        okl.compare(ROWS, LABELS, are_labels=False)


def test_labels_that_python_calls_equal_are_two() -> None:
    truths = [(True, 1, False, 0)[i % 4] for i in range(40)]
    line = okl.compare([[float(i % 4)] for i in range(40)], truths, ["frequencies"])[0]
    assert (line.rounds, line.refusal) == (40, None)


def test_truths_that_are_too_far_apart_are_refused() -> None:
    line = okl.compare(ROWS[:3], [1e308, -1e308, 0.0], ["mean"])[0]
    assert line.refusal == "The truths, from -1e+308 to 1e+308, are too far apart; scale them down."


def test_all_learners_are_compared_on_labels_or_all_on_numbers() -> None:
    ratings = [1 + i % 5 for i in range(30)]
    named, classes = {"kind": "auto", "config": {"truth": "numbers"}}, {"kind": "auto", "config": {"truth": "classes"}}
    numbers = okl.compare(ROWS[:30], ratings, ["auto", named, classes, "one-vs-rest", "aioli"])
    assert [line.is_classifier for line in numbers] == [False] * 5
    assert numbers[0].error == numbers[1].error is not None
    assert all("with this config takes labels, not numbers" in (line.refusal or "") for line in numbers.lines[2:])
    labels = okl.compare(ROWS[:30], ratings, [classes, "one-vs-rest", "mean"])
    assert [line.is_classifier for line in labels] == [True] * 3
    assert "/labels" in (labels["mean"].refusal or "")


@pytest.mark.parametrize(
    ("rows", "truths", "told"),
    [
        ([], [], "no rows"),
        ([[1.0]] * 2, [1.0, float("nan")], "Truth 1 is missing; leave out the rows"),
        ([[1.0]] * 2, [{}, 1.0], "neither a label"),
        ([[1.0]] * 2, ["a"] * 2, "two"),
        ([1.0, 2.0], [1.0, 2.0], "Row 0 is neither a list"),
        ([{"a": 1.0}, "a"], [1.0, 2.0], "Row 1 is neither a list"),
    ],
)
def test_what_cannot_be_compared(rows: list[Any], truths: list[Any], told: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=told):
        okl.compare(rows, truths)


def test_it_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="2 inputs and 1 truths"):
        okl.compare([[1.0], [2.0]], [1.0])
    with pytest.raises(errors.ConfigurationError, match="at most 64"):
        okl.compare(ROWS, LABELS, ["mean"] * 65)
    with pytest.raises(errors.ConfigurationError, match="no learners"):
        okl.compare(ROWS, LABELS, [])
    with pytest.raises(ValueError, match="not -1"):
        okl.compare(ROWS, LABELS, ["mean"], delay=-1)


def test_a_learner_may_stand_alone_and_places_are_of_any_kind() -> None:
    assert [line.name for line in okl.compare(ROWS[:30], LABELS[:30], "majority")] == ["majority"]
    found = okl.compare(ROWS[:30], pd.DataFrame({"y": LABELS[:30]}), ["majority", "mean"])
    assert found[np.argmax([False, True])] is found.lines[1]
