"""Structured logs: one line per record, as text or as JSON, with the facts as fields."""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import time
from typing import Any, Final

from okl.errors import ConfigurationError

from .escaping import UNSAFE
from .keys.audit import AuditFile
from .keys.key import without_secrets
from .settings import Settings
from .trace import current

LOGGERS: Final = ("okl", "uvicorn", "asyncio")

MAX_VALUE: Final = 1_000
MAX_EXCEPTION: Final = 8_000
"""The most characters of a value or a message, and of a traceback; longer ones are cut in the middle."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}
_IN_MESSAGE = re.compile(f"[{UNSAFE}]")
_IN_QUOTES = re.compile(f'["\\\\{UNSAFE}]')
_PLAIN = re.compile(f"[^\\s\"'=\\\\{UNSAFE}]+")
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _ESCAPES.get(found[0]) or (f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}")


def _text(value: object, most: int = MAX_VALUE) -> str:
    """A value as text without keys, which a client may put into a path or a query. A value that cannot be shown must not lose
    the record."""
    try:
        text = without_secrets(str(value))
    except Exception as error:
        text = f"<{type(value).__name__}: {type(error).__name__}>"
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2) :]}"


def _message(record: logging.LogRecord) -> str:
    """The message; a log call with wrong arguments must not lose the record either."""
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
    """A field as text. A value with spaces or special characters is quoted, lest it look like another field or record."""
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
        traceback = "" if exception is None else _field("exception", exception)
        return (
            f"{stamp} {record.levelname} {record.name} {_IN_MESSAGE.sub(_escaped, _message(record))}{facts}{traceback}"
        )


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
        # A refusal is a plain HTTP answer, which the server takes for an incomplete handshake.
        "ASGI callable returned without completing handshake.",
        "Invalid UTF-8 sequence received from client.",
    }
)


class NotOfClients(logging.Filter):
    """Drops errors logged by the server's websockets that any client can cause, as often as it likes."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.name != "uvicorn.error" or record.msg not in _OF_CLIENTS


class OfTrace(logging.Filter):
    """Adds the current request's trace to a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        trace = current.get()
        if trace is not None:
            record.trace_id = trace.trace_id
        return True


def configure(settings: Settings, *, shows_audit: bool = True) -> None:
    """Send the records of the service and of the server to standard error, those of the audit log only if `shows_audit`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(NotOfClients())
    handler.addFilter(OfTrace())
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else TextFormatter())
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(settings.log_level.upper())
    _configure_audit(settings, handler if shows_audit else None)


def _configure_audit(settings: Settings, handler: logging.Handler | None) -> None:
    """Write the whole audit log to the file, whatever the log level, and to the handler if the level permits."""
    logger = logging.getLogger("okl.audit")
    is_level_enough = logging.getLogger("okl").isEnabledFor(logging.INFO)
    logger.handlers = [handler] if handler is not None and is_level_enough else []
    if settings.audit_file:
        try:
            file = AuditFile(settings.audit_file, settings.audit_file_bytes)
        except OSError as error:
            raise ConfigurationError(f"OKL_AUDIT_FILE: {error}.") from error
        file.setFormatter(JsonFormatter())
        logger.handlers.append(file)
    logger.propagate = False
    logger.setLevel(logging.INFO)
