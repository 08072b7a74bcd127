"""What a bench prints is kept as it is, with what one needs to know of where it comes from."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench import record as recording
from bench.record import RESULTS, file_of, record, without_folders
from tests.docs.pages import ROOT

HEAD = re.compile(
    r"# python -m bench\.(?P<name>[\w.]+).*\n# \d{4}-\d\d-\d\d, [\d.]+ minutes on .+, \d+ cores\n(# exit code 1\n)?\n[^\n]"
)
FILES = sorted(RESULTS.rglob("*.txt"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(recording, "RESULTS", tmp_path)
    return tmp_path


def test_a_file_has_the_command_the_day_the_machine_and_what_was_printed(folder: Path) -> None:
    assert record("papers.pomdr", ["--help", "--a9a", "/folder/of/a9a.npz"]) == 0
    kept = (folder / "papers" / "pomdr.txt").read_text()
    assert kept.startswith(f"# python -m bench.papers.pomdr --help --a9a a9a.npz\n# {datetime.now(UTC):%Y-%m-%d}, ")
    assert HEAD.match(kept)
    assert "\n\nusage: pomdr.py" in kept


def test_every_bench_lists_its_options() -> None:
    programs = [path for path in (ROOT / "bench").rglob("*.py") if '__name__ == "__main__"' in path.read_text()]
    assert [path.name for path in programs if "ArgumentParser(" not in path.read_text()] == []


def test_of_a_bench_that_is_broken_off_nothing_is_kept(folder: Path) -> None:
    assert record("papers.pomdr", ["--no-such-option"]) == 2
    assert record("papers.pomdr", ["--a9a", str(folder / "no.npz"), "--permutations", "0"]) == 1
    with pytest.raises(SystemExit, match=r"bench\.nothing"):
        record("nothing", [])
    assert list(folder.iterdir()) == []


def test_paths_are_reduced_to_their_names() -> None:
    assert [without_folders(each) for each in ("--data", "a/b.npz", "/a/b", "0.5")] == ["--data", "b.npz", "b", "0.5"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(RESULTS).as_posix())
def test_every_file_was_written_by_its_bench(file: Path) -> None:
    head = HEAD.match(text := file.read_text())
    assert head
    assert file_of(head["name"]) == file
    assert (ROOT / "bench" / head["name"].replace(".", "/")).with_suffix(".py").exists()
    assert not re.search(r"(?<![\w.%])/\w+/", text)
    assert "Traceback" not in text
