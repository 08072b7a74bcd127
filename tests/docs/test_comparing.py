"""The table of docs/comparing.md is what its commands print, but for the time that they take."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from bench import turned
from okl.comparing import HEADINGS
from service.commands.compare import cells_of, compare
from service.commands.recording import Selection
from tests.docs.pages import DOCS

TIMED = HEADINGS.index("rounds/s")


@pytest.mark.slow
def test_the_table_is_what_the_command_prints(tmp_path: Path) -> None:
    path = tmp_path / "turned.csv"
    turned.main([str(path)])
    found = compare(Console(quiet=True), path, Selection.of("class", drop=None, only=None, fill="none"), [])
    first, _, table = (DOCS / "comparing.md").read_text().partition("learner         mistake rate")
    assert first.endswith(f"```text\n{found.recording.title}: {found.recording.told}\n")
    text = table.partition("\n```")[0]
    told = [line.split(maxsplit=6) for line in text.splitlines()[1:]]
    for shown, one in zip(told, found.contestants, strict=True):
        cells = cells_of(one)
        memory, _, verdict = shown.pop().partition("KiB")
        assert [*shown, f"{memory.strip()} KiB", verdict.strip()][:TIMED] == cells[:TIMED]
        assert [*shown, f"{memory.strip()} KiB", verdict.strip()][TIMED + 1 :] == cells[TIMED + 1 :]
