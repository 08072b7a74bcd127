"""The console on which the commands print."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@cache
def console() -> Console:
    """The console, as wide as the terminal; 100 characters if there is none."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 100)
