"""A session's truths and forecasts: in its own labels or units, and in the learner's terms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl.errors import InvalidInput, WrongTruth
from okl_core.types import REALS, Forecast
from service.session.definition import Scalar
from service.session.truths import Answer, Truths

finite = st.floats(-1e6, 1e6)
ranges = st.tuples(finite, st.floats(1e-3, 1e6)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(ranges, st.floats(0.0, 1.0), st.sampled_from([0.5, 1.0, 3.0, math.inf]))
def test_a_range_goes_there_and_back(y_range: tuple[float, float], share: float, largest: float) -> None:
    low, high = y_range
    y = min(high, low + share * (high - low))
    truths = Truths("real", None, y_range, (-largest, largest))
    inner = truths.to_learner(y)
    half = largest if math.isfinite(largest) else 1.0
    assert abs(inner) <= half * (1.0 + 1e-12)
    assert truths.from_learner(inner) == pytest.approx(y, rel=1e-9, abs=1e-9 * (high - low))
    assert truths.from_learner(inner + 1.0) - truths.from_learner(inner) == pytest.approx(truths.unit, rel=1e-6)


@given(ranges, st.sampled_from([(-0.5, 0.5), (-7.3, 7.3), (0.0, 1.0), (0.1, 0.4)]))
def test_the_ends_of_a_range_are_truths(y_range: tuple[float, float], taken: tuple[float, float]) -> None:
    """Rounding may not put an end outside what the learner takes."""
    truths = Truths("real", None, y_range, taken)
    assert (truths.to_learner(y_range[0]), truths.to_learner(y_range[1])) == taken


def test_without_a_range_the_bound_is_told() -> None:
    with pytest.raises(WrongTruth, match=r"from -1\.0 to 1\.0"):
        Truths("real", None, None, (-1.0, 1.0)).to_learner(1.5)


@pytest.mark.parametrize("y", [True, "1", 0, 1.5])
def test_only_signs_without_labels(y: object) -> None:
    with pytest.raises(InvalidInput):
        Truths("binary", None, None, REALS).to_learner(y)  # type: ignore[arg-type]


def test_a_score_of_zero_is_the_positive_label() -> None:
    truths = Truths("binary", ("no", "yes"), None, REALS)
    assert [truths.label(value) for value in (-1e-300, -0.0, 0.0, 1.0)] == ["no", "yes", "yes", "yes"]


LABELS: dict[str, tuple[Scalar, ...]] = {
    "texts": ("no", "yes"),
    "integers": (0, 1),
    "booleans": (False, True),
    "equal in Python alone": (1, True, 0, False),
    "mixed": ("1", 1, "a", True),
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_each_label_has_a_place_of_its_own(labels: tuple[Scalar, ...]) -> None:
    """1 and true are two labels, although Python takes them for one."""
    truths = Truths("class", labels, None, (0.0, len(labels) - 1.0))
    assert (truths.is_classifier, truths.has_classes, len(truths.names)) == (True, True, len(labels))
    for place, label in enumerate(labels):
        assert truths.to_learner(label) == place
        probabilities = tuple(float(place == k) for k in range(len(labels)))
        told = truths.answer(Forecast(1.0, None, probabilities))
        assert (told.label, type(told.label)) == (label, type(label))
        second = probabilities[1] if len(labels) == 2 else None
        assert told == Answer(label=label, probability=second, probabilities=probabilities)


SCALARS = st.one_of(
    st.sampled_from([True, False, "1", "a", "no", 0, 1, 1.0, -1, 2.5, 2**53, 2**53 + 1, 2**63, 10**400]),
    st.integers(-3, 3),
    finite,
)


@given(st.lists(SCALARS, max_size=8), st.sampled_from([*LABELS.values(), (3, -1, 2.5), (2**53, 2**53 + 1), None]))
def test_many_truths_are_those_of_one_by_one(ys: list[Scalar], labels: tuple[Scalar, ...] | None) -> None:
    truths = [Truths("real", None, (-5.0, 5.0), (-1.0, 1.0)), Truths("real", None, None, REALS)]
    if labels is not None:
        truths = [Truths("class", labels, None, (0.0, len(labels) - 1.0))]
    for one in truths:
        given_ys: list[Any] = [ys]
        if all(type(y) is float for y in ys):
            given_ys.append(np.array(ys, dtype=np.float64))
        for many in given_ys:
            found = one.to_learner_rows(many)
            try:
                expected = [one.to_learner(y) for y in ys]
            except (InvalidInput, OverflowError):  # the latter for a number that no request can have
                assert found is None
            else:
                assert found is not None
                assert found.tolist() == expected


@pytest.mark.parametrize("labels", [labels for labels in LABELS.values() if len(labels) == 2])
def test_two_labels_are_the_signs(labels: tuple[Scalar, ...]) -> None:
    truths = Truths("binary", labels, None, REALS)
    assert [truths.to_learner(label) for label in labels] == [-1.0, 1.0]
    assert truths.answer(Forecast(-0.5, 0.25)) == Answer(score=-0.5, label=labels[0], probability=0.25)
    assert truths.answer(Forecast(0.5)) == Answer(score=0.5, label=labels[1])


def test_without_labels_classes_are_numbered_and_signs_are_signs() -> None:
    assert Truths("class", None, None, (0.0, 3.0)).names == (0, 1, 2, 3)
    assert Truths("binary", None, None, REALS).names == (-1, 1)
    assert Truths("real", None, None, REALS).names == ()
    assert not Truths("real", None, None, REALS).is_classifier


def test_an_error_names_some_of_many_labels() -> None:
    truths = Truths("class", tuple(f"label {i}" for i in range(200)), None, (0.0, 199.0))
    with pytest.raises(WrongTruth, match=r"'label 8', \.\.\., 'label 199'"):
        truths.to_learner("label")


@pytest.mark.parametrize(
    ("labels", "y", "told"),
    [
        (None, True, "is true; this session takes a number"),
        (None, "1", "is '1'; this session takes a number"),
        ((False, True), "yes", "is 'yes'; the labels of this session are false, true"),
        (("no", 1), False, "is false; the labels of this session are 'no', 1"),
        ((0, 1), 0.5, "is 0.5; the labels of this session are 0, 1"),
        ((0, 1), 2.0, "is 2; the labels of this session are 0, 1"),
        ((0, 1), np.float64(0.5), "is 0.5; the labels of this session are 0, 1"),
    ],
)
def test_an_error_shows_a_boolean_as_in_json(labels: tuple[Scalar, ...] | None, y: Scalar, told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Truths("binary" if labels else "real", labels, None, REALS).to_learner(y)
    assert refused.value.extra["errors"] == [{"pointer": "/y", "detail": told}]


def test_a_regressor_answers_in_its_units() -> None:
    assert Truths("real", None, (100.0, 200.0), (-2.0, 2.0)).answer(Forecast(1.0)) == Answer(value=175.0)
    assert Truths("real", None, None, REALS).answer(Forecast(1.5)) == Answer(value=1.5)
