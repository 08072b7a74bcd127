"""What a process that was forked from another must not share with it: connections, and the ids that it makes."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable
from typing import Generic, TypeVar, final

T = TypeVar("T")


@final
class PerProcess(Generic[T]):
    """What is made again in each process: two that read from one connection would take each other's answers."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made, self._process = make(), os.getpid()

    def get(self) -> T:
        """That of this process."""
        if self._process != os.getpid():
            self._made, self._process = self._make(), os.getpid()
        return self._made


@final
class Ids:
    """Ids that nobody else makes, a forked process neither: its rounds would pass for those of the first, sent again."""

    def __init__(self) -> None:
        self._prefixes = PerProcess(lambda: secrets.token_urlsafe(9))
        self._count = itertools.count()

    def new(self) -> str:
        return f"{self._prefixes.get()}-{next(self._count):x}"
