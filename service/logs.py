"""Logs that an operator can read: one line a record, as text or as JSON, with the facts as fields."""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import time
from typing import Any, Final

from okl.errors import ConfigurationError

from .keys.audit import AuditFile
from .keys.key import without_secrets
from .settings import Settings
from .trace import current

LOGGERS: Final = ("okl", "uvicorn", "asyncio")

MAX_VALUE: Final = 1_000
MAX_EXCEPTION: Final = 8_000
"""So many characters of a value or a message, and of a traceback; what is left out is in the middle."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}
_UNSAFE = r"\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
"""Controls, ends of lines, marks that turn the direction of writing, halves of characters."""

_IN_MESSAGE = re.compile(f"[{_UNSAFE}]")
_IN_QUOTES = re.compile(f'["\\\\{_UNSAFE}]')
_PLAIN = re.compile(f"[^\\s\"'=\\\\{_UNSAFE}]+")
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _ESCAPES.get(found[0]) or (f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}")


def _text(value: object, most: int = MAX_VALUE) -> str:
    """A value that cannot be shown must not lose the record. Whoever puts a key in a path or a query has it in the log of
    requests, and the server tells the query of a socket."""
    try:
        text = without_secrets(str(value))
    except Exception as error:
        text = f"<{type(value).__name__}: {type(error).__name__}>"
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2) :]}"


def _message(record: logging.LogRecord) -> str:
    """A call with the wrong arguments must not lose the record either."""
    try:
        return _text(record.getMessage())
    except Exception:
        return _text(record.msg)


def _exception(record: logging.LogRecord, formatter: logging.Formatter) -> str | None:
    if record.exc_info and record.exc_info[0] is not None:
        return _text(formatter.formatException(record.exc_info), MAX_EXCEPTION)
    return None if record.exc_text is None else _text(record.exc_text, MAX_EXCEPTION)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _field(name: str, text: str) -> str:
    """A value with a space or a sign of its own goes in quotes: it may not look like a field of its own, or like a record."""
    shown = text if _PLAIN.fullmatch(text) else '"' + _IN_QUOTES.sub(_escaped, text) + '"'
    return f" {name}={shown}"


def _json_value(value: object) -> object:
    if value is None or isinstance(value, bool) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return value if isinstance(value, int) and abs(value) < 1 << 63 else _text(value)


class TextFormatter(logging.Formatter):
    """2026-01-31T12:00:00Z INFO okl.sessions session created session=clicks kind=pomdr"""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        facts = "".join(_field(name, _text(value)) for name, value in _fields(record).items())
        exception = _exception(record, self)
        told = "" if exception is None else _field("exception", exception)
        return f"{stamp} {record.levelname} {record.name} {_IN_MESSAGE.sub(_escaped, _message(record))}{facts}{told}"


class JsonFormatter(logging.Formatter):
    """{"time": ..., "level": "info", "logger": "okl.sessions", "message": "session created", "session": "clicks"}"""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        document |= {name: _json_value(value) for name, value in _fields(record).items() if name not in document}
        exception = _exception(record, self)
        if exception is not None:
            document["exception"] = exception
        return json.dumps(document).replace("\x7f", "\\u007f")


_OF_CLIENTS: Final = frozenset(
    {
        # A refusal is an answer of HTTP, and the server misses the handshake in it.
        "ASGI callable returned without completing handshake.",
        "Invalid UTF-8 sequence received from client.",
    }
)


class NotOfClients(logging.Filter):
    """Leaves out what the server's websockets log as errors and any client may cause, as often as it likes."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.name != "uvicorn.error" or record.msg not in _OF_CLIENTS


class OfTrace(logging.Filter):
    """Adds the trace of the request under way to a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        trace = current.get()
        if trace is not None:
            record.trace_id = trace.trace_id
        return True


def configure(settings: Settings) -> None:
    """Send the service's and the server's records to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(NotOfClients())
    handler.addFilter(OfTrace())
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else TextFormatter())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(settings.log_level.upper())
    _configure_audit(settings, handler)


def _configure_audit(settings: Settings, handler: logging.Handler) -> None:
    """The file has all of the audit log, whatever the least level is."""
    logger = logging.getLogger("okl.audit")
    logger.handlers = [handler] if logging.getLogger("okl").isEnabledFor(logging.INFO) else []
    if settings.audit_file:
        try:
            file = AuditFile(settings.audit_file, settings.audit_file_bytes)
        except OSError as error:
            raise ConfigurationError(f"OKL_AUDIT_FILE: {error}.") from error
        file.setFormatter(JsonFormatter())
        logger.handlers.append(file)
    logger.propagate = False
    logger.setLevel(logging.INFO)
