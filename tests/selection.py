"""What `make test-fast` runs: all but the tests with the mark `slow`. This module sets the mark; a single long test has it
in its own file.

Left out are the folders and files of `SLOW`, whatever needs Redis, and most cases of large grids: of each test that has more
than `CASES` cases so many stay, spread evenly. The contract of the learners in their default configs is run in full.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

SLOW = (
    "tests/attacks/",
    "tests/docs/test_aioli_bench.py",
    "tests/docs/test_docs.py::test_curl_answers_as_printed",
    "tests/docs/test_docs.py::test_python_runs",
    "tests/docs/test_kons_bench.py",
    "tests/docs/test_lost_updates_bench.py::test_ours_loses",
    "tests/docs/test_metric_bench.py",
    "tests/contract/test_learners.py::test_contract_with_other_configs",
    "tests/contract/test_sqlite_damage.py",
    "tests/contract/test_store_processes.py",
    "tests/service/test_demo.py",
    "tests/service/test_openapi.py",
    "tests/service/test_repair_command.py",
    "tests/service/test_serve.py",
    "tests/service/test_start.py",
    "tests/simulation/",
    "tests/slow/",
)
"""Long runs, real processes, requests made up by a machine."""

WHOLE = ("tests/contract/test_learners.py::test_contract",)

CASES = 2


def is_left_out(path: Path, config: pytest.Config) -> bool:
    """Whether a file or folder need not even be looked at, since the slow ones do not run."""
    relative = path.relative_to(config.rootpath).as_posix() + ("/" if path.is_dir() else "")
    return config.getoption("markexpr") == "not slow" and relative in SLOW


def mark_slow(items: Iterable[pytest.Item]) -> None:
    grids: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.nodeid.startswith(SLOW) or item.get_closest_marker("redis"):
            item.add_marker("slow")
        if not item.get_closest_marker("slow"):
            grids.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for test, grid in grids.items():
        every = 1 if test in WHOLE else -(-len(grid) // CASES)
        for i, item in enumerate(grid):
            if i % every:
                item.add_marker("slow")
