"""Both forms of a log record: one line each, whatever is in it."""

from __future__ import annotations

import json
import logging
import re
import shlex
import sys
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.keys.key import KeyScope, mint
from service.logs import LOGGERS, MAX_EXCEPTION, MAX_VALUE, JsonFormatter, TextFormatter, configure
from service.settings import Settings

NASTY = "a\x1b[2J\x9b31m\r\nb\x85c\u2028d\u2029e\x0bf\x0cg\x1ch\x7fi\u202ej"
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]")


def record(
    message: object = "session %s", arguments: tuple[object, ...] = ("created",), **facts: object
) -> logging.LogRecord:
    found = logging.makeLogRecord({"name": "okl.sessions", "levelname": "INFO", "msg": message, "args": arguments})
    found.created = 1_700_000_000.25
    vars(found).update(facts)
    return found


def failed(text: str = "no such thing") -> logging.LogRecord:
    try:
        raise ValueError(text)
    except ValueError:
        return record(exc_info=sys.exc_info())


def test_text_is_one_line_with_its_facts() -> None:
    line = TextFormatter().format(record(session="clicks", t=3))
    assert line == "2023-11-14T22:13:20Z INFO okl.sessions session created session=clicks t=3"


def test_json_is_one_document_with_its_facts() -> None:
    line = JsonFormatter().format(record(session="clicks", t=3, cause=ValueError("why"), rate=float("nan")))
    assert json.loads(line, parse_constant=pytest.fail) == {
        "time": 1_700_000_000.25,
        "level": "info",
        "logger": "okl.sessions",
        "message": "session created",
        "session": "clicks",
        "t": 3,
        "cause": "why",
        "rate": "nan",
    }


def test_an_exception_is_told_whole_in_the_same_line() -> None:
    text = TextFormatter().format(failed())
    assert text.startswith('2023-11-14T22:13:20Z INFO okl.sessions session created exception="Traceback')
    assert text.endswith('ValueError: no such thing"')
    assert len(text.splitlines()) == 1
    document = json.loads(JsonFormatter().format(failed()))
    assert document["exception"].endswith("ValueError: no such thing")
    assert "\n" in document["exception"]


@given(st.text(), st.text(), st.text())
@example(NASTY, NASTY, NASTY)
@example("", "", "%s")
@example("x" * 100_000, "y" * 100_000, "z" * 100_000)
def test_any_text_is_one_line(value: str, cause: str, message: str) -> None:
    """In the message, in a field, in an exception; and it is short."""
    for formatter in (TextFormatter(), JsonFormatter()):
        for made in (record(message, ()), record(message, (cause,)), record(path=value, detail=cause), failed(cause)):
            line = formatter.format(made)
            assert len(line.splitlines()) == 1
            assert not UNSAFE.search(line)
            assert len(line) <= 12 * (MAX_VALUE + MAX_EXCEPTION)
            line.encode("utf-8")


@given(st.text(min_size=1))
@example('abc" level=ERROR forged="')
@example("a b=c")
@example('x\\" forged=1')
@example("=")
def test_a_value_is_one_field(value: str) -> None:
    """What a client chose, such as its X-Request-Id, cannot add fields to a record."""
    line = TextFormatter().format(record("seen", (), instance=value, t=3))
    fields = shlex.shlex(line.split("seen ", 1)[1], posix=True)
    fields.whitespace, fields.whitespace_split, fields.commenters, fields.quotes = " ", True, "", '"'
    assert [part.partition("=")[0] for part in fields] == ["instance", "t"]


def test_a_record_that_cannot_be_shown_is_not_lost() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    for formatter in (TextFormatter(), JsonFormatter()):
        assert "Broken" in formatter.format(record(value=Broken()))
        assert "two %s %s" in formatter.format(record("two %s %s", ("one",)))
        assert "<int: ValueError>" in formatter.format(record(value=10**5000))


@pytest.fixture
def _loggers() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [(one.handlers, one.propagate, one.level) for one in loggers]
    yield
    for one, (handlers, propagate, level) in zip(loggers, before, strict=True):
        one.handlers, one.propagate = handlers, propagate
        one.setLevel(level)


@pytest.mark.usefixtures("_loggers")
@pytest.mark.parametrize("form", ["text", "json"])
def test_configure(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Our records and the server's look the same, and are told once."""
    configure(Settings(log_format=form, log_level="warning"))
    configure(Settings(log_format=form, log_level="warning"))
    names = ("okl.sessions", "uvicorn.error", "asyncio")
    for name in names:
        logging.getLogger(name).info("unheard")
        logging.getLogger(name).warning("heard\nforged", extra={"t": 1})
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(names)
    for line in lines:
        assert "heard" in line
        assert (json.loads(line)["t"] == 1) if form == "json" else line.endswith(" t=1")


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_no_secret_of_a_key_is_told(formatter: logging.Formatter) -> None:
    """Wherever a client has put it: the server tells the query of a socket."""
    key, text = mint("name", KeyScope.WRITE, now=0.0)
    told = formatter.format(
        record('"WebSocket /stream?key=%s" 401', (text,), session=f"a.{text}", path=f"/sessions/{text}/x")
    )
    assert text.removeprefix(f"okl_{key.id}_") not in told
    assert told.count(f"okl_{key.id}_...") == 3
