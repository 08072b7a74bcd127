"""The notebooks run, and print what is saved in them."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from tests.docs.notebooks import FOLDER, executed, texts

NUMBER = re.compile(r"-?\d[\d,]*\.?\d*")
TOLERANCE = 0.03
"""Of a number, since processors sum in other orders; a unit of its last digit is allowed, too."""


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")
def test_a_notebook_prints_what_is_saved_in_it(path: Path) -> None:
    saved = list(texts(nbformat.read(path, as_version=4)))
    for (source, was), (_, now) in zip(saved, texts(executed(path)), strict=True):
        assert NUMBER.split(was) == NUMBER.split(now), source
        for before, after in zip(NUMBER.findall(was), NUMBER.findall(now), strict=True):
            unit = 10.0 ** -len(before.partition(".")[2])
            assert _number(after) == pytest.approx(_number(before), rel=TOLERANCE, abs=1.01 * unit), source


def _number(text: str) -> float:
    return float(text.replace(",", ""))
