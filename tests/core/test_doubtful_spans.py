"""Spans of columns that were constant, nearly constant or absurd at first: later values mend them."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl_core.errors import StateFormatError
from okl_core.records.fields import Field, Fields
from okl_core.records.kept import arrays_of, json_of, preparation_of
from okl_core.records.preparation import Preparation
from okl_core.records.scaling import LOST, REMEMBERED, SETTLED, Scaling
from okl_core.types import F64

WARMUP = 500


def found(X: F64) -> Scaling:
    return Scaling.found(X, np.ones(X.shape[1], dtype=bool), np.zeros(X.shape[1], dtype=bool), None)


def after_all(column: F64) -> Scaling:
    """The scaling found from the warm-up, after the other rounds."""
    V = column[:, None]
    return found(V[:WARMUP]).rows(V[WARMUP:])[1]


def noise(rounds: int, seed: int = 0) -> F64:
    return np.random.default_rng(seed).normal(size=rounds)


def sparse(rounds: int = WARMUP) -> F64:
    column, rng = np.zeros(rounds), np.random.default_rng(0)
    places = rng.permutation(rounds)[: 3 * rounds // 100]
    column[places] = rng.permutation(np.resize([-2.0, 2.0], len(places)))
    return column


# -- the warm-up ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("absurd", [20.0, 1e9, -1e9, 1e-9, 1.7e308])
@pytest.mark.parametrize("rounds", [100, WARMUP])
def test_one_absurd_value_in_a_sparse_column_spoils_nothing(rounds: int, absurd: float) -> None:
    column = sparse(rounds)
    place = int(np.flatnonzero(column == 0.0)[5])
    column[place] = absurd
    scaling = found(column[:, None])
    assert (scaling.low[0], scaling.span[0]) == (-2.0, 4.0)


@pytest.mark.parametrize("absurd", [1e9, -1e9, 1e-9])
def test_an_absurd_value_that_was_the_only_other_one_is_found_out(absurd: float) -> None:
    column = np.zeros(WARMUP + 60)
    column[5], column[WARMUP::10] = absurd, [2.0, -2.0] * 3
    scaling = after_all(column)
    assert (scaling.low[0], scaling.span[0]) == (0.0, 2.0)


def test_an_absurd_row_does_not_spoil_a_common_unit() -> None:
    X = np.random.default_rng(0).integers(0, 17, (WARMUP, 20)).astype(float)
    X[:, :5] *= np.random.default_rng(1).random((WARMUP, 5)) < 0.03
    X[5] = 1e9
    assert (found(X).span == 16.0).all()


# -- afterwards -------------------------------------------------------------------------------------------------------

EARLY = {
    "constant, then off by a billionth": (600, 0.0, np.array([1e-9])),
    "constant, then absurd": (600, 0.0, np.array([1e12])),
    "constant, then jitter": (600, 0.0, 1e-6 * noise(100, 1)),
    "jitter of 490 rounds": (490, 1e-12, np.empty(0)),
    "jitter of 600 rounds": (600, 1e-12, np.empty(0)),
    "constant for 300 rounds": (300, 0.0, np.empty(0)),
    "constant for 490 rounds": (490, 0.0, np.empty(0)),
    "constant for 600 rounds": (600, 0.0, np.empty(0)),
}


@pytest.mark.parametrize("constant", [0.0, 5.0, -1e3])
@pytest.mark.parametrize("early", EARLY)
def test_a_column_that_was_constant_gets_the_span_of_its_later_values(early: str, constant: float) -> None:
    rounds, jitter, then = EARLY[early]
    column = constant + np.concatenate((jitter * noise(rounds, 2), then, noise(300)))
    assert 0.2 <= after_all(column).span[0] <= 5.0


FAULTS = {
    "a code": np.full(5 * LOST, -9999.0),
    "a burst": 1e9 * noise(LOST - 1, 1),
    "codes in turn": np.resize([-999999.0, -888888.0], 200),
    "a long burst": 1e6 * noise(270, 1),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("digits", [15, 0], ids=["numbers", "few values"])
def test_a_column_that_varied_keeps_its_numbers(fault: str, digits: int) -> None:
    before, after = noise(700).round(digits), noise(400, 1).round(digits)
    scaling = after_all(np.concatenate((before, FAULTS[fault], after)))
    assert scaling.maps_alike(found(before[:WARMUP, None]))
    assert not {**scaling.trials, **scaling.strays, **scaling.formers}


def test_a_range_that_lasts_is_kept() -> None:
    column = np.concatenate((noise(700), 1e6 * noise(LOST + SETTLED + REMEMBERED, 1)))
    scaling = after_all(column)
    assert 1e5 < scaling.span[0] < 4e6
    assert after_all(np.append(column, noise(300))).maps_alike(scaling)


def test_a_far_value_that_stays_costs_once() -> None:
    scaling = after_all(np.append(noise(700), -9999.0))
    assert scaling.seen(np.array([-9999.0])) is scaling
    assert scaling.seen(np.array([-9998.0])).strays[0].times == 2
    assert not scaling.seen(np.array([1.0])).strays


def test_a_trial_ends() -> None:
    """So that many absurd values later do no harm, and a rare value costs no memory."""
    scaling = after_all(np.append(np.zeros(WARMUP), np.resize([1.0, 0.0], 2 * SETTLED)))
    assert (scaling.span[0], scaling.trials) == (1.0, {})


# -- one state --------------------------------------------------------------------------------------------------------

VALUES = st.sampled_from([0.0, 1e-9, -1.0, 1.5, 2e4, -1e12, 1.7e308, -1.7e308])
COLUMNS = st.lists(
    st.tuples(VALUES, VALUES, st.integers(1, 2 * LOST)), min_size=1, max_size=6
).map(lambda runs: np.concatenate([np.resize([one, other], rounds) for one, other, rounds in runs]))  # fmt: skip


def assert_one_state(V: F64, first: int, cut: int) -> None:
    """Rounds one by one, in blocks, and after the stored state has been read: the same vectors and the same state."""
    fields = Fields(tuple(Field(str(j)) for j in range(V.shape[1])))
    one = Preparation.found(fields, list(V[:first]), None)
    block = one.copy()
    np.testing.assert_array_equal(one.learn_first(V[:first]), block.learn_first(list(V[:first])))
    expected = []
    for v in V[first:]:
        expected.append(one.vector(v))
        one.see(v)
    start = block.learn_rows(V[first:cut])
    block = preparation_of(json.loads(json.dumps(json_of(block))), arrays_of(block))
    X = np.concatenate((start, block.learn_rows(V[cut:])))
    np.testing.assert_array_equal(X, np.array(expected).reshape(-1, V.shape[1]))
    assert json.dumps(json_of(block)) == json.dumps(json_of(one))
    assert np.isfinite(expected).all()


@pytest.mark.parametrize("column", [2, -1, 9999, 0.0, True, "0"])
@pytest.mark.parametrize(("kind", "doubt"), [("trials", [0.0, [1.0]]), ("strays", [1, 1e6]), ("formers", [2.0, 1, 0])])
def test_doubts_about_columns_that_are_not_there_are_refused(column: Any, kind: str, doubt: list[Any]) -> None:
    plain = Preparation(Fields((Field("0"), Field("1"))), Scaling(np.zeros(2), np.ones(2)))

    def doubted(j: Any) -> dict[str, Any]:
        doubts = {"trials": [], "strays": [], "formers": [], kind: [[j, doubt]]}
        return json_of(plain) | {"scaling": [True, None, *doubts.values()]}

    [column_in_doubt] = getattr(preparation_of(doubted(1), arrays_of(plain)).scaling, kind)
    assert column_in_doubt == 1
    with pytest.raises(StateFormatError, match="there are 2 columns"):
        preparation_of(doubted(column), arrays_of(plain))


@pytest.mark.parametrize("doubts", [[[0, ["q", [1.0]]]], [[0, [1.0, ["q"]]]], [[0, [None, [1.0]]]]])
def test_doubts_that_are_no_numbers_are_refused(doubts: list[Any]) -> None:
    plain = Preparation(Fields((Field("0"), Field("1"))), Scaling(np.zeros(2), np.ones(2)))
    with pytest.raises((TypeError, ValueError)):
        preparation_of(json_of(plain) | {"scaling": [True, None, doubts, [], []]}, arrays_of(plain))


@pytest.mark.parametrize("radius", ["a", math.nan, math.inf, 0.0, -1.0, [1.0]])
def test_a_radius_that_is_none_is_refused(radius: Any) -> None:
    plain = Preparation(Fields((Field("0"), Field("1"))), Scaling(np.zeros(2), np.ones(2)))
    with pytest.raises((TypeError, ValueError, StateFormatError)):
        preparation_of(json_of(plain) | {"scaling": [True, radius]}, arrays_of(plain))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2)])
@pytest.mark.parametrize("name", ["scaling.low", "scaling.span"])
def test_a_scaling_of_other_columns_is_refused(name: str, shape: tuple[int, ...]) -> None:
    plain = Preparation(Fields((Field("0"), Field("1"))), Scaling(np.zeros(2), np.ones(2)))
    with pytest.raises(StateFormatError, match="2 columns have a scaling of shapes"):
        preparation_of(json_of(plain), arrays_of(plain) | {name: np.ones(shape)})


@given(COLUMNS, COLUMNS, st.integers(1, 40), st.data())
def test_blocks_and_snapshots_change_nothing(a: F64, b: F64, first: int, data: st.DataObject) -> None:
    V = np.column_stack((np.resize(a, len(a) + 40), np.resize(b, len(a) + 40)))
    assert_one_state(V, first, data.draw(st.integers(first, len(V))))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("rounds", [1, 63, 64, 70, 80, 100, 290])
def test_a_snapshot_after_the_start_of_a_fault_changes_nothing(fault: str, rounds: int) -> None:
    column = np.concatenate((noise(100), FAULTS[fault], noise(150, 1)))
    assert_one_state(np.column_stack((column, column[::-1])), 60, 100 + rounds)
