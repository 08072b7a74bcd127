"""The house: which folder may import which, names that are given once, and modules of a readable size."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from bench.entered import entered_by_an_update
from tests.docs.architecture import PACKAGES, edges

ROOT = Path(__file__).parents[2]
CORE = ROOT / "okl_core"

ROOTS = {"types", "errors", "losses"}
MAY_IMPORT = {
    "types": set[str](),
    "errors": set[str](),
    "losses": {"types", "errors"},
    "contract": ROOTS,
    "linalg": ROOTS,
    "metrics": ROOTS | {"contract", "linalg"},
    "kernels": ROOTS | {"contract", "linalg", "metrics"},
    "second_order": ROOTS | {"contract", "linalg", "kernels"},
    "first_order": ROOTS | {"contract", "linalg", "kernels"},
    "packing": ROOTS | {"contract", "linalg", "metrics"},
    "diagnostics": ROOTS | {"linalg", "kernels"},
    "pool": ROOTS | {"contract", "linalg", "second_order"},
    "conformal": ROOTS | {"contract"},
    "monitoring": ROOTS | {"contract"},
    "automatic": ROOTS | {"contract", "linalg", "kernels", "second_order"},
    "records": ROOTS,
    "learners": ROOTS
    | {"contract", "linalg", "metrics", "kernels", "second_order", "first_order", "packing", "pool", "automatic"},
    "delayed": ROOTS | {"contract", "linalg", "kernels", "second_order", "learners"},
}
"""What each folder or root module of the library may import."""

LINES, LINES_OF_A_LEARNER = 400, 200

SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
BENCHES = sorted((ROOT / "bench").rglob("*.py"))


@cache
def nodes() -> list[tuple[Path, ast.ClassDef | ast.Import | ast.ImportFrom]]:
    """The classes and imports of every module."""
    return [(path, node) for path in SOURCES for node in classes_and_imports(path)]


def classes_and_imports(path: Path) -> Iterator[ast.ClassDef | ast.Import | ast.ImportFrom]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.Import | ast.ImportFrom):
            yield node


def test_arrows_between_folders_run_downward() -> None:
    found = {box: {other.partition(".")[2] for other in others} for box, others in edges().items()}
    core = {box.partition(".")[2]: others for box, others in found.items() if box.startswith("okl_core.")}
    assert set(core) == set(MAY_IMPORT)
    assert {box: others - MAY_IMPORT[box] for box, others in core.items() if others - MAY_IMPORT[box]} == {}


@pytest.mark.parametrize("folder", ["contract", "linalg", "metrics", "kernels"])
def test_a_folder_loads_nothing_above_it(folder: str) -> None:
    program = f"import sys, okl_core.{folder}; print(*sorted(m for m in sys.modules if m.startswith('okl_core.')))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    above = {"second_order", "first_order", "packing", "pool", "automatic", "diagnostics", "learners"}
    assert {module.split(".")[1] for module in loaded} & above == set()


def test_two_files_never_share_a_name() -> None:
    names = defaultdict(list)
    for path in CORE.rglob("*.py"):
        if path.name != "__init__.py":
            names[path.name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in names.items() if len(paths) > 1} == {}


def test_a_class_name_is_defined_once() -> None:
    """Of our own; what users import has the plain names, in each module of `okl`."""
    names = defaultdict(list)
    for path, node in nodes():
        if isinstance(node, ast.ClassDef) and path.relative_to(ROOT).parts[0] != "okl":
            names[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: places for name, places in names.items() if len(places) > 1} == {}


def test_modules_are_of_a_readable_size() -> None:
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    assert {path: lines for path, lines in sizes.items() if lines > LINES} == {}
    learners = {path: lines for path, lines in sizes.items() if path.startswith("okl_core/learners/")}
    assert {path: lines for path, lines in learners.items() if lines > LINES_OF_A_LEARNER} == {}


def test_one_update_of_kons_enters_few_modules() -> None:
    found = entered_by_an_update("kons")
    assert found["algorithm"] == [
        "second_order.kernel_space",
        "second_order.newton",
        "second_order.second_order",
        "second_order.space_and_rule",
    ]


def test_the_packages_stand_on_one_another() -> None:
    """`service` on `okl` and `okl_core`, `okl` on `okl_core`, which stands alone; nothing in `service` says its own name."""
    seen = {package: set[str]() for package in PACKAGES}
    for path, node in nodes():
        own = path.relative_to(ROOT).parts[0]
        if isinstance(node, ast.Import):
            seen[own] |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            seen[own].add(node.module.split(".")[0])
    found = {package: names & set(PACKAGES) for package, names in seen.items()}
    assert found["okl_core"] == {"okl_core"}
    assert found["okl"] <= {"okl", "okl_core"}
    assert found["service"] == {"okl", "okl_core"}


def test_every_bench_finds_what_it_imports() -> None:
    """Most benches are run by hand alone: a name of ours that is no longer there shows here."""
    missing = []
    for path in BENCHES:
        for node in classes_and_imports(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in {
                *PACKAGES,
                "bench",
                "tests",
            }:
                known = names_in(node.module or "")
                unknown = [alias.name for alias in node.names if alias.name not in known]
                missing += [f"{path.relative_to(ROOT)}:{node.lineno} {name}" for name in unknown]
    assert missing == []


@cache
def names_in(module: str) -> set[str]:
    """The names that a module defines or imports and, for a folder, its modules; nothing is imported."""
    place = ROOT.joinpath(*module.split("."))
    if not place.is_dir():
        return bound_in(ast.parse(place.with_suffix(".py").read_text()))
    inside = {path.stem for path in place.iterdir()}
    start = place / "__init__.py"
    return (inside | bound_in(ast.parse(start.read_text()))) if start.exists() else inside


def bound_in(tree: ast.Module) -> set[str]:
    """The names that the statements of a module bind, those under an `if` included."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names
