"""What the documentation has from the code is what `make docs` would write now."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.record import RESULTS
from tests.docs import architecture, generated, results
from tests.docs.pages import name_of

TOLD = "is not what the code says: run `make docs`"


PAGES = generated.pages()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_has_what_the_code_says(page: Path) -> None:
    text = page.read_text()
    assert generated.replaced(text, PAGES[page]) == text, f"{name_of(page)} {TOLD}"


def test_every_result_is_shown_with_its_command_its_machine_and_its_figures() -> None:
    made = results.results()
    for file in RESULTS.rglob("*.txt"):
        command, machine = (line.removeprefix("# ") for line in file.read_text().splitlines()[:2])
        link = file.relative_to(RESULTS.parent)
        assert f"\n\n`{command}`; [{link}]({link}); {machine}" in made
    drawn = set(re.findall(r"\]\(\.\./docs/figures/([\w-]+)\.svg\)", made))
    assert {"frontier-magic", "kons-time", "late-places", "pomdr"} <= drawn


@pytest.fixture(scope="module")
def picture() -> str:
    return architecture.svg()


def test_the_picture_is_that_of_the_imports(picture: str) -> None:
    assert architecture.FIGURE.read_text() == picture, f"{name_of(architecture.FIGURE)} {TOLD}"


def test_the_picture_shows_every_folder_and_no_box_covers_another(picture: str) -> None:
    drawn = ElementTree.fromstring(picture)
    names = {"".join(text.itertext()) for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    folders = {f"{path.parent.name}/" for path in architecture.ROOT.glob("okl_core/*/__init__.py")}
    assert folders | {"api/", "store/"} <= names
    boxes = [
        {side: float(rectangle.attrib[side]) for side in ("x", "y", "width", "height")}
        for rectangle in drawn.iter("{http://www.w3.org/2000/svg}rect")
        if rectangle.get("class") in ("folder", "module")
    ]
    for i, one in enumerate(boxes):
        for other in boxes[:i]:
            assert any(
                low[side] + low[size] <= high[side]
                for side, size in (("x", "width"), ("y", "height"))
                for low, high in ((one, other), (other, one))
            )


def test_arrows_lead_down_and_a_circle_has_no_floor() -> None:
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert architecture.floors(graph) == {"a": 2, "b": 1, "c": 0}
    assert architecture.reduced(graph) == {"a": {"b"}, "b": {"c"}, "c": set()}
    with pytest.raises(ValueError, match="circle"):
        architecture.floors({"a": {"b"}, "b": {"a"}, "c": set()})
