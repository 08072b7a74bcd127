"""Selection of test cases: subsets of large grids, and the tests that `make test-fast` leaves out.

A test marked `pairs` runs a subset of its grid in which any two values of two parameters meet at least once (pairwise
coverage); with the mark `each`, every value of every parameter occurs at least once. `TIMES=2 pytest ...` runs all cases.

`make test-fast` skips tests marked `slow`. This module sets the mark; single long tests set it in their own files. It marks
the folders and files of `SLOW`, all tests that need Redis, and most cases of large grids: a test with more than `CASES`
cases keeps that many, spread evenly. The contract of the learners in their default configs and their recorded forecasts
run in full.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.budget import TIMES

SLOW = (
    "tests/attacks/",
    "tests/browser/",
    "tests/docs/test_aioli_bench.py",
    "tests/docs/test_examples.py::test_curl_answers_as_printed",
    "tests/docs/test_examples.py::test_python_runs",
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
    "tests/package/",
    "tests/simulation/",
    "tests/slow/",
)
"""Long runs, real processes, requests made up by a machine."""

WHOLE = (
    "tests/contract/test_learners.py::test_contract",
    "tests/contract/test_learners.py::test_contract_of_all_kernels",
    "tests/golden/test_forecasts.py::test_run_gives_the_forecasts_written_down",
)

CASES = 2


def is_left_out(path: Path, config: pytest.Config) -> bool:
    """Whether a file or folder need not be collected, because slow tests do not run."""
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


TOGETHER = {"pairs": 2, "each": 1}
"""How many values of a case count together as one thing to be covered."""


def leave_few(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Drop the cases that the marks `pairs` and `each` leave out."""
    grids: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        for mark, together in TOGETHER.items():
            if TIMES == 1 and item.get_closest_marker(mark):
                grids.setdefault((item.nodeid.partition("[")[0], together), []).append(item)
    dropped = [item for (_, together), grid in grids.items() for item in redundant(grid, together)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        left_out = set(dropped)
        items[:] = [item for item in items if item not in left_out]


def redundant(grid: list[pytest.Item], together: int) -> list[pytest.Item]:
    """The cases that a greedy cover leaves out: it takes the case with the most new combinations until none is new.

    It breaks ties in favour of the case whose values were taken least, so that all values get their turn.
    """
    rest = {item: set(combinations_of(item, together)) for item in grid}
    values = {item: combinations_of(item, 1) for item in grid}
    taken: Counter[object] = Counter()
    while rest:
        most = max(map(len, rest.values()))
        longest = (item for item, found in rest.items() if len(found) == most)
        best = min(longest, key=lambda item: sum(taken[value] for value in values[item]))
        new = rest.pop(best)
        if not new:
            return [best, *rest]
        taken.update(values[best])
        for found in rest.values():
            found -= new
    return []


def combinations_of(item: pytest.Item, together: int) -> frozenset[tuple[tuple[str, str], ...]]:
    """The combinations of one up to `together` parameter values that the case contains."""
    values = sorted((name, repr(value)) for name, value in item.callspec.params.items())
    sizes = range(1, together + 1)
    return frozenset(itertools.chain.from_iterable(itertools.combinations(values, size) for size in sizes))
