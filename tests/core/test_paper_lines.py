"""The tables that say where each line of a paper's algorithm is: what they name is in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

CORE = Path(__file__).parents[2] / "okl_core"
TREES = {path: ast.parse(path.read_text()) for path in CORE.rglob("*.py")}

FOLLOWED = {"aioli", "balls", "kons", "pomdr_round", "row_sampling", "sketched_kons"}
"""The modules that follow an algorithm of one of the four papers line by line."""


def docstrings() -> Iterator[tuple[str, str]]:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef):
                yield path.stem, ast.get_docstring(node) or ""


def tables() -> Iterator[tuple[str, str]]:
    """Module and text of each table whose last column is headed `here`."""
    for module, text in docstrings():
        for paragraph in text.split("\n\n"):
            head = next((line for line in paragraph.splitlines() if set(line) - set("= ")), "")
            if re.search(r"\bhere\s*\|?$", head):
                yield module, paragraph


def names() -> set[str]:
    """Functions, classes, and members of classes as `Class.member`; functions of modules as `module.function`, too."""
    found: set[str] = set()
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found |= {node.name, f"{path.stem}.{node.name}"}
            if isinstance(node, ast.ClassDef):
                found |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
                fields = [part.target for part in node.body if isinstance(part, ast.AnnAssign)]
                found |= {f"{node.name}.{field.id}" for field in fields if isinstance(field, ast.Name)}
    return found


def test_what_the_tables_name_is_there() -> None:
    known = names()
    named = [(module, name) for module, text in tables() for name in re.findall(r"`([^`]+)`", text)]
    assert [(module, name) for module, name in named if name not in known] == []
    assert {module for module, _ in named} == FOLLOWED
