"""What a logger says, as the lines that an operator reads."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from service.logs import OfTrace, TextFormatter


@contextmanager
def kept_lines(name: str, level: str) -> Iterator[list[str]]:
    """Of the logger of this name, from this level on, until the block ends."""
    lines: list[str] = []

    class Keeps(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(TextFormatter().format(record))

    handler, logger = Keeps(), logging.getLogger(name)
    handler.addFilter(OfTrace())
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(level)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
