"""The examples of the documentation run as they are printed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import okl_core.contract.learner
from okl_core import learner_kinds

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["extending.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner_kinds()
    monkeypatch.setattr(okl_core.learner, "_REGISTRY", dict(okl_core.learner._REGISTRY))
    text = (DOCS / page).read_text()
    # A module of its own, since annotations of dataclasses are looked up in the module that they were written in.
    module = ModuleType(page.removesuffix(".md"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    blocks = list(BLOCK.finditer(text))
    assert blocks
    for block in blocks:
        lines_before = text.count("\n", 0, block.start(1))
        # Empty lines in front make a traceback name the line of the page.
        exec(compile("\n" * lines_before + block[1], page, "exec"), vars(module))
