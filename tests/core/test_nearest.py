"""The nearest point against a search in plain Python, by each of the three ways that it can be found."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okl_core.errors import StateFormatError
from okl_core.linalg import boxes
from okl_core.linalg.boxes import Boxes
from okl_core.linalg.growing_columns import GrowingColumns
from okl_core.linalg.nearest import FARTHEST, Nearest, squared_distances
from okl_core.types import F64
from tests.core.packing_streams import WAYS, use_way


def square(s: F64, z: F64) -> float:
    total = 0.0
    for a, b in zip(s.tolist(), z.tolist(), strict=True):
        total += (a - b) * (a - b)
    return total


def search(points: F64, z: F64) -> tuple[int, float]:  # points: (n, d)
    squares = [square(s, z) for s in points]
    return squares.index(min(squares)), min(squares)


def stored(points: F64) -> Nearest:  # points: (n, d)
    found = Nearest(points.shape[1])
    for s in points:
        found.append(s)
    return found


@st.composite
def clouds(draw: st.DrawFn) -> tuple[F64, F64]:
    """Points and inputs: with ties, repeated, offset, tiny, huge, with outliers among them."""
    d, n = draw(st.integers(1, 12)), draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    cloud = rng.uniform(-1.0, 1.0, (n + 12, d))
    if draw(st.booleans()):
        cloud = np.round(2.0 * cloud) / 2.0
    cloud *= draw(st.sampled_from([1.0, 1e-162, 1e-150, 1e-8, 1e150]))
    if draw(st.booleans()):
        cloud[rng.random(len(cloud)) < 0.2] *= 1e3
    if draw(st.booleans()):
        cloud += draw(st.sampled_from([1.0, 1e7, -1e12])) * np.abs(cloud).max()
    cloud *= min(1.0, 1e152 / max(1.0, np.abs(cloud).max()))
    cloud[n : n + 4] = cloud[rng.integers(0, n, 4)]
    return cloud[:n], cloud[n:]


@pytest.mark.parametrize("way", WAYS)
@given(cloud=clouds())
def test_every_way_finds_the_oldest_of_the_nearest(way: str, cloud: tuple[F64, F64]) -> None:
    points, inputs = cloud
    expected = [search(points, z) for z in inputs]
    with pytest.MonkeyPatch.context() as patch:
        use_way(patch, way)
        found = stored(points)
        assert [found.find(z) for z in inputs] == expected
        indices, squares = found.find_block(inputs.T.copy())
        assert list(zip(indices.tolist(), squares.tolist(), strict=True)) == expected


@given(d=st.integers(1, 50), n=st.integers(1, 20), seed=st.integers(0, 2**32))
def test_a_squared_distance_has_the_same_bits_alone_and_among_others(d: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, z = rng.standard_normal((d, n)), rng.standard_normal(d)
    expected = [square(s, z) for s in points.T]
    assert squared_distances(points, z).tolist() == expected
    assert [squared_distances(points[:, i : i + 1], z).item() for i in range(n)] == expected
    assert squared_distances(points, np.repeat(z[:, None], n, axis=1)).tolist() == expected


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("d", [1, 2, 5, 9])
def test_points_may_come_after_the_first_question(way: str, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    use_way(monkeypatch, way)
    rng = np.random.default_rng(d)
    points = rng.standard_normal((400, d))
    # More of the same point than a box holds.
    points[100:130] = points[100]
    found = Nearest(d)
    for n, s in enumerate(points, start=1):
        found.append(s)
        if n % 37 == 0:
            z = rng.standard_normal(d)
            assert found.find(z) == search(points[:n], z)
    again = Nearest.unpack(found.pack())
    Z = rng.standard_normal((d, 100))
    for first, second in zip(found.find_block(Z), again.find_block(Z), strict=True):
        np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(points, again.pack())
    assert found.find(points[129]) == (100, 0.0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("d", [1, 3, 50])
def test_nothing_overflows_up_to_the_farthest_point(way: str, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    use_way(monkeypatch, way)
    far = np.full(d, 0.999 * np.sqrt(FARTHEST / d))
    points = np.vstack((np.zeros(d), far, -far, 0.5 * far))
    found = stored(points)
    for z in (far, -far, 0.26 * far, np.zeros(d)):
        assert found.find(z) == search(points, z)
        assert np.isfinite(found.find_block(np.column_stack((z, z)))[1]).all()


@pytest.mark.parametrize("d", [1, 3, 6])
def test_a_box_is_cut_before_it_is_full(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    use_way(monkeypatch, "boxed")
    points = np.random.default_rng(0).standard_normal((d, 500))
    made = Boxes(points[:, :100])
    for i in range(100, 500):
        assert max(made.sizes) < boxes.BOX
        made.append(i, points[:, i])
    assert sum(made.sizes) == 500


def test_columns_are_those_appended_whatever_is_copied_or_restored() -> None:
    X = np.random.default_rng(0).standard_normal((3, 100))
    columns = GrowingColumns(3, capacity=2)
    for start, stop in ((0, 1), (1, 2), (2, 3), (3, 40), (40, 100)):
        columns.extend(X[:, start:stop])
        np.testing.assert_array_equal(columns.view, X[:, :stop])
    for other in (copy.deepcopy(columns), GrowingColumns.unpack(columns.pack())):
        other.append()[:] = 1.0
        np.testing.assert_array_equal(other.view, np.column_stack((X, np.ones(3))))
    np.testing.assert_array_equal(columns.view, X)
    assert len(columns) == 100


def test_points_of_a_wrong_shape_are_refused() -> None:
    with pytest.raises(StateFormatError):
        Nearest.unpack(np.zeros(3))
