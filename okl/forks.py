"""State that a forked process must not share with its parent: connections and the prefix of generated ids."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable
from typing import Generic, TypeVar, final

T = TypeVar("T")


@final
class PerProcess(Generic[T]):
    """A value created anew in each process: two processes on one connection would read each other's answers."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._value, self._process = make(), os.getpid()

    def get(self) -> T:
        """The value of this process."""
        if self._process != os.getpid():
            self._value, self._process = self._make(), os.getpid()
        return self._value


@final
class Ids:
    """Globally unique ids, in forked processes too: a repeated id would make a new round look like a retry."""

    def __init__(self) -> None:
        self._prefixes = PerProcess(lambda: secrets.token_urlsafe(9))
        self._count = itertools.count()

    def new(self) -> str:
        return f"{self._prefixes.get()}-{next(self._count):x}"
