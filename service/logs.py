"""Logs that an operator can read: one line a record, as text or as JSON, with the facts as fields."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from service.settings import Settings

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _in_one_line(value: Any) -> str:
    """What comes from outside may not look like a record of its own."""
    return str(value).replace("\r", "\\r").replace("\n", "\\n")


class TextFormatter(logging.Formatter):
    """2026-01-31T12:00:00Z INFO okl.sessions session created session=clicks kind=pomdr"""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        facts = "".join(f" {name}={_in_one_line(value)}" for name, value in _fields(record).items())
        line = f"{stamp} {record.levelname} {record.name} {record.getMessage()}{facts}"
        return line if record.exc_info is None else f"{line}\n{self.formatException(record.exc_info)}"


class JsonFormatter(logging.Formatter):
    """{"time": ..., "level": "info", "logger": "okl.sessions", "message": "session created", "session": "clicks"}"""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info is not None:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


def configure(settings: Settings) -> None:
    """Send the service's and the server's records to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else TextFormatter())
    for name in ("okl", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(settings.log_level.upper())
