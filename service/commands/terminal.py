"""The console on which the commands print, and their progress bars."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn


@cache
def console() -> Console:
    """The console, as wide as the terminal; 100 characters if there is none."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 100)


def progress_of_rows(console: Console, *columns: ProgressColumn, disable: bool = False) -> Progress:
    """Bars of the rows done, with these columns before the time that remains."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    name = TextColumn("{task.description}", markup=False)
    return Progress(
        name, BarColumn(), MofNCompleteColumn(), *columns, TimeRemainingColumn(), console=console, disable=disable
    )
