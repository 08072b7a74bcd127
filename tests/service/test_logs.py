"""Both forms of a log record."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from service.logs import JsonFormatter, TextFormatter, configure
from service.settings import Settings


def record(
    message: str = "session %s", arguments: tuple[object, ...] = ("created",), **facts: object
) -> logging.LogRecord:
    found = logging.makeLogRecord({"name": "okl.sessions", "levelname": "INFO", "msg": message, "args": arguments})
    found.created = 1_700_000_000.25
    vars(found).update(facts)
    return found


def failed() -> logging.LogRecord:
    try:
        raise ValueError("no such thing")
    except ValueError:
        return record(exc_info=sys.exc_info())


def test_text_is_one_line_with_its_facts() -> None:
    line = TextFormatter().format(record(session="clicks", t=3))
    assert line == "2023-11-14T22:13:20Z INFO okl.sessions session created session=clicks t=3"


def test_json_is_one_document_with_its_facts() -> None:
    line = JsonFormatter().format(record(session="clicks", t=3, cause=ValueError("why")))
    assert json.loads(line) == {
        "time": 1_700_000_000.25,
        "level": "info",
        "logger": "okl.sessions",
        "message": "session created",
        "session": "clicks",
        "t": 3,
        "cause": "why",
    }
    assert "\n" not in line


def test_an_exception_is_told_whole() -> None:
    text = TextFormatter().format(failed())
    assert text.startswith("2023-11-14T22:13:20Z INFO okl.sessions session created\nTraceback")
    assert text.endswith("ValueError: no such thing")
    document = json.loads(JsonFormatter().format(failed()))
    assert document["exception"].endswith("ValueError: no such thing")


def test_a_fact_from_outside_cannot_make_a_line_of_its_own() -> None:
    line = TextFormatter().format(record(path="/sessions/a\n2023-11-14T22:13:20Z INFO okl forged"))
    assert "\n" not in line


@pytest.fixture
def _loggers() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("okl", "uvicorn")]
    before = [(one.handlers, one.propagate, one.level) for one in loggers]
    yield
    for one, (handlers, propagate, level) in zip(loggers, before, strict=True):
        one.handlers, one.propagate = handlers, propagate
        one.setLevel(level)


@pytest.mark.usefixtures("_loggers")
@pytest.mark.parametrize("form", ["text", "json"])
def test_configure(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure(Settings(log_format=form, log_level="warning"))
    configure(Settings(log_format=form, log_level="warning"))
    for name in ("okl.sessions", "uvicorn.error"):
        logging.getLogger(name).info("unheard")
        logging.getLogger(name).warning("heard", extra={"t": 1})
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "heard" in line
        assert (json.loads(line)["t"] == 1) if form == "json" else line.endswith(" t=1")
