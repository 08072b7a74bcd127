"""How an input becomes a vector: named features in the order of the session's schema, or a plain list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl_core.errors import StateFormatError
from service.errors import InvalidInput, WrongDimension, WrongFeatures, WrongType
from service.session.definition import Feature, Input
from service.session.inputs import Layout, listed, pointer
from tests.service.definitions import define

finite = st.floats(-1e6, 1e6)
SCHEMA = (Feature("width"), Feature("wet", "boolean"), Feature("colour", "category", ("red", "green", "blue")))


@given(st.dictionaries(st.text(min_size=1, max_size=5), finite | st.booleans(), min_size=1), st.randoms())
def test_the_order_of_keys_does_not_matter(x: dict[str, float | bool], shuffler: object) -> None:
    layout = Layout.infer(x)
    names = list(x)
    shuffler.shuffle(names)  # type: ignore[attr-defined]
    assert Layout.infer({name: x[name] for name in names}) == layout
    expected = [float(x[name]) for name in sorted(x)]
    assert layout.vector({name: x[name] for name in names}).tolist() == expected


def test_a_category_is_one_input_a_value() -> None:
    layout = Layout.of_features([Feature("a", "category", ("x", "y", "z")), Feature("b")])
    assert layout.dim == 4
    assert layout.vector({"b": 2.0, "a": "y"}).tolist() == [0.0, 1.0, 0.0, 2.0]


def test_a_text_cannot_be_inferred() -> None:
    with pytest.raises(WrongFeatures, match="/x/colour"):
        Layout.infer({"colour": "red"})


@pytest.mark.parametrize(
    ("name", "expected"), [("a", "/x/a"), ("a/b", "/x/a~1b"), ("a~b", "/x/a~0b"), ("~1", "/x/~01")]
)
def test_pointers_are_those_of_rfc_6901(name: str, expected: str) -> None:
    assert pointer(name) == expected


def test_what_is_declared() -> None:
    assert Layout.declared(define()) is None
    assert Layout.declared(define(dim=3)) == Layout(3)
    assert Layout.declared(define(features=SCHEMA)) == Layout(5, SCHEMA)


@pytest.mark.parametrize("layout", [Layout(3), Layout.of_features(SCHEMA), Layout.infer({"é/~": 1.0, "b": True})])
def test_a_layout_comes_back_from_its_bytes(layout: Layout) -> None:
    assert Layout.decode(layout.encode()) == layout


@pytest.mark.parametrize("document", [b"", b"{", b"[]", b"3", b"{}", b'{"dim": 3}', b'{"features": [["a"]]}', b"\xff"])
def test_other_bytes_are_no_layout(document: bytes) -> None:
    with pytest.raises(StateFormatError):
        Layout.decode(document)


REFUSED: dict[str, tuple[Layout, Input, type[InvalidInput], str]] = {
    "too short": (Layout(2), [1.0], WrongDimension, "/x"),
    "too long": (Layout(2), [1.0, 2.0, 3.0], WrongDimension, "/x"),
    "named for a list": (Layout(2), {"a": 1.0}, WrongFeatures, "/x"),
    "a list for named": (Layout.of_features(SCHEMA), [1.0], WrongFeatures, "/x"),
    "one missing": (Layout.of_features(SCHEMA), {"width": 1.0, "wet": True}, WrongFeatures, "/x/colour"),
    "one more": (
        Layout.of_features(SCHEMA), {"width": 1.0, "wet": True, "colour": "red", "a~": 1.0}, WrongFeatures, "/x/a~0"
    ),
    "another category": (
        Layout.of_features(SCHEMA), {"width": 1.0, "wet": True, "colour": "pink"}, WrongFeatures, "/x/colour"
    ),
    "a number for a boolean": (
        Layout.of_features(SCHEMA), {"width": 1.0, "wet": 1.0, "colour": "red"}, WrongType, "/x/wet"
    ),
    "a boolean for a number": (
        Layout.of_features(SCHEMA), {"width": True, "wet": True, "colour": "red"}, WrongType, "/x/width"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("layout", "x", "kind", "where"), REFUSED.values(), ids=REFUSED)
def test_another_input_is_refused_where_it_is_wrong(
    layout: Layout, x: Input, kind: type[InvalidInput], where: str
) -> None:
    with pytest.raises(kind) as caught:
        layout.vector(x)
    assert type(caught.value) is kind
    assert [error["pointer"] for error in caught.value.extra["errors"]] == [where]


def test_a_long_list_is_told_in_part() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed(range(10)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert listed(range(200)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, ..., 199"
