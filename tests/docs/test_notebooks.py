"""The notebooks run, and print what is saved in them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

import okl
from tests.docs.notebooks import FOLDER, ROOT, executed, printed, texts
from tests.warm import warm

NUMBER = re.compile(r"-?\d[\d,]*\.?\d*")
TOLERANCE = 0.03
"""Of a number, since processors sum in other orders; a unit of its last digit is allowed, too."""


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")
def test_a_notebook_prints_what_is_saved_in_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[okl.local.__module__], "Popen", warm)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(ROOT)
    notebook = nbformat.read(path, as_version=4)
    for (source, was), (_, now) in zip(texts(notebook), printed(notebook), strict=True):
        assert NUMBER.split(was) == NUMBER.split(now), source
        for before, after in zip(NUMBER.findall(was), NUMBER.findall(now), strict=True):
            unit = 10.0 ** -len(before.partition(".")[2])
            assert _number(after) == pytest.approx(_number(before), rel=TOLERANCE, abs=1.01 * unit), source


def test_what_a_kernel_prints_is_saved(tmp_path: Path) -> None:
    once, varying = new_code_cell("print(6 * 7)"), new_code_cell("print(id(object()))", metadata={"tags": ["varies"]})
    nbformat.write(new_notebook(cells=[once, varying]), tmp_path / "sums.ipynb")
    assert list(texts(executed(tmp_path / "sums.ipynb"))) == [("print(6 * 7)", "42\n")]


def _number(text: str) -> float:
    return float(text.replace(",", ""))
