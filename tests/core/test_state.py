"""A state as named arrays and as bytes: lossless, and nothing else is taken for one."""

from __future__ import annotations

import hashlib
import io
import json
import math
import tracemalloc
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from okl_core import create, restore
from okl_core.contract.state import DIGEST_BYTES, META, NUMBERS, from_bytes, pack, to_bytes, unpack
from okl_core.errors import StateFormatError
from okl_core.kernels.points import Points
from okl_core.linalg.cholesky import Factor
from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64, LearnerState

any_float = st.floats(width=64)
named_arrays = st.dictionaries(
    st.text("abcdefgh_.", min_size=1, max_size=8),
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4), elements=any_float),
    max_size=4,
)


@dataclass(slots=True)
class Everything(LearnerState):
    scale: float
    is_late: bool
    w: F64
    points: Points
    factor: Factor
    r: GrowingArray
    later: Points | None


def everything() -> Everything:
    state = Everything(
        t=3,
        scale=0.1,
        is_late=True,
        w=np.arange(6.0).reshape(2, 3).T,
        points=Points.of(np.random.default_rng(0).normal(size=(5, 2)), centred=True),
        factor=Factor(),
        r=GrowingArray(2),
        later=None,
    )
    for i in range(70):
        state.factor.append(np.full(i, 0.01), 1.0 + i)
        state.r.append(np.array([i, -i], dtype=np.float64))
    return state


def test_every_kind_of_field_is_packed_and_comes_back() -> None:
    arrays = pack(everything())
    assert sorted(arrays) == [
        "factor",
        "is_late",
        "points.centred",
        "points.origin",
        "points.rows",
        "points.unit",
        "r",
        "scale",
        "t",
        "w",
    ]
    assert all(array.dtype == np.float64 and array.flags.c_contiguous for array in arrays.values())
    state = unpack(Everything, arrays)
    assert (state.t, state.scale, state.is_late) == (3, 0.1, True)
    assert isinstance(state.t, int)
    again = pack(state)
    assert {name: array.tobytes() for name, array in again.items()} == {
        name: array.tobytes() for name, array in arrays.items()
    }


def test_what_is_none_has_no_arrays_and_comes_back() -> None:
    state = everything()
    assert unpack(Everything, pack(state)).later is None
    state.later = state.points
    arrays = pack(state)
    again = unpack(Everything, arrays).later
    assert again is not None
    np.testing.assert_array_equal(again.coordinates(), state.points.coordinates())
    del arrays["later.rows"]
    with pytest.raises(StateFormatError, match="later"):
        unpack(Everything, arrays)


def test_packed_arrays_are_copies() -> None:
    state = everything()
    arrays = pack(state)
    for array in arrays.values():
        array[...] = np.nan
    assert np.isfinite(state.w).all()
    assert np.isfinite(state.r.view).all()
    assert np.isfinite(state.points.coordinates()).all()


@pytest.mark.parametrize(
    "change",
    [
        {"t": None},
        {"points.origin": None},
        {"surplus": np.zeros(1)},
        {"t": np.zeros(2)},
        {"t": np.array(np.nan)},
        {"t": np.array(np.inf)},
        {"points.rows": np.zeros((2, 7))},
        {"factor": np.ones(4)},
    ],
    ids=str,
)
def test_arrays_of_another_state_are_refused(change: dict[str, Any]) -> None:
    arrays: dict[str, Any] = {**pack(everything()), **change}
    with pytest.raises(StateFormatError):
        unpack(Everything, {name: array for name, array in arrays.items() if array is not None})


@given(arrays=named_arrays, meta=st.dictionaries(st.text(), st.integers() | st.text(), max_size=3))
def test_bytes_are_lossless(arrays: dict[str, F64], meta: dict[str, Any]) -> None:
    for name in ("format", "shapes"):
        meta.pop(name, None)
    again, read = from_bytes(to_bytes(arrays, meta))
    assert list(again) == list(arrays)
    for name, array in arrays.items():
        assert again[name].shape == array.shape
        assert again[name].tobytes() == array.tobytes()
    assert read == {"format": 1, **meta}


def test_equal_states_have_equal_bytes() -> None:
    assert to_bytes(pack(everything()), {"a": 1}) == to_bytes(pack(everything()), {"a": 1})


def test_bytes_are_a_plain_npz() -> None:
    blob = to_bytes(pack(everything()), {"kind": "mean"})
    with np.load(io.BytesIO(blob), allow_pickle=False) as archive:
        meta = json.loads(archive[META].tobytes())
        assert meta["kind"] == "mean"
        assert len(archive[NUMBERS]) == sum(math.prod(shape) for shape in meta["shapes"].values())
        assert archive[NUMBERS][0] == 3.0 == pack(everything())[next(iter(meta["shapes"]))]


def test_every_flipped_byte_is_refused() -> None:
    blob = to_bytes({"t": np.array(1.0), "w": np.ones(3)}, {})
    for position in range(len(blob)):
        damaged = bytearray(blob)
        damaged[position] ^= 0x41
        with pytest.raises(StateFormatError):
            from_bytes(bytes(damaged))


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(blob: bytes) -> None:
    for signed in (blob, with_digest(blob)):
        with pytest.raises(StateFormatError):
            from_bytes(signed)


def sealed(members: dict[str, bytes]) -> bytes:
    """An archive with a right digest, as a stranger could make it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.comment = bytes(DIGEST_BYTES)
    return with_digest(buffer.getvalue()[:-DIGEST_BYTES])


def with_digest(body: bytes) -> bytes:
    return body + hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()


def npy(array: Any, *, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def document(text: str) -> bytes:
    return npy(np.frombuffer(text.encode(), dtype=np.uint8))


def of_shapes(shapes: Any) -> bytes:
    return document(json.dumps({"format": 1, "shapes": shapes}))


NO_NUMBERS = {"__meta__.npy": of_shapes({}), "__numbers__.npy": npy(np.empty(0))}


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"__meta__.npy": document("[1]")},
        {"__meta__.npy": document("{}")},
        {"__meta__.npy": document("{")},
        {"__meta__.npy": document('{"format": 2}')},
        {"__meta__.npy": b""},
        NO_NUMBERS | {"w.npy": npy(np.ones(3))[:-4]},
        NO_NUMBERS | {"w.npy": npy(np.ones(3)).replace(b"(3,)", b"(3,(")},
        NO_NUMBERS | {"w.npy": npy(np.array([{}]), allow_pickle=True)},
        {"__meta__.npy": document('{"format": 1}'), "__numbers__.npy": npy(np.ones(3))},
        {"__meta__.npy": NO_NUMBERS["__meta__.npy"]},
        NO_NUMBERS | {"__meta__.npy": of_shapes({str(i): [0] for i in range(70_000)})},
        NO_NUMBERS | {"__numbers__.npy": npy(np.ones(1))},
        NO_NUMBERS | {"__numbers__.npy": npy(np.ones((2, 0)))},
        *(
            {"__meta__.npy": of_shapes(shapes), "__numbers__.npy": npy(np.ones(3))}
            for shapes in (
                {"a": [2]},
                {"a": [4]},
                {"a": [-3]},
                {"a": [-1, 3], "b": [3], "c": [-1, 3], "d": [3]},
                {"a": [0.5]},
                {"a": [True, 3]},
                {"a": 3},
                {"a": [1 << 70]},
                [3],
            )
        ),
    ],
    ids=range(23),
)
def test_archives_that_are_no_state_are_refused(members: dict[str, bytes]) -> None:
    with pytest.raises(StateFormatError):
        from_bytes(sealed(members))


@pytest.mark.parametrize("descr", ["<f8", "|V0", "<U0"])
def test_a_header_takes_no_memory_that_no_bytes_stand_for(descr: str) -> None:
    """A number of no bytes is none either: of these any many fit."""
    header = io.BytesIO()
    shape = (1 << 27, 3)
    np.lib.format.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
    blob = sealed(NO_NUMBERS | {"w.npy": header.getvalue()})
    tracemalloc.start()
    try:
        with pytest.raises(StateFormatError):
            from_bytes(blob)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_arrays_by_columns_come_back() -> None:
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    arrays, _ = from_bytes(sealed(NO_NUMBERS | {"w.npy": npy(array)}))
    assert arrays["w"].tolist() == array.tolist()
    assert arrays["w"].flags.c_contiguous
    assert arrays["w"].flags.writeable


FORGETTING = {"kind": "pros-n-kons", "config": {"half_life": 16, "loss": "squared-hinge", "regularization": 0.5}}


@pytest.mark.parametrize(
    ("spec", "name", "made_up"),
    [
        ({"kind": "frequencies", "config": {"classes": 2}}, "counts", np.full((1, 2), 2.0)),
        ({"kind": "frequencies", "config": {"classes": 2}}, "counts", np.array([1.0, 2.0, 1.0])),
        ({"kind": "frequencies"}, "counts", np.array([np.nan, 4.0])),
        ({"kind": "frequencies"}, "counts", np.array([-1.0, 5.0])),
        ({"kind": "frequencies"}, "counts", np.array([1.0, 2.0])),
        ({"kind": "softmax-aioli"}, "posterior.S", np.full((2, 2), np.nan)),
        ({"kind": "aioli", "config": {"intercept": False}}, "space.posterior.S", np.full((1, 1), np.inf)),
        (FORGETTING, "space.posterior.P", np.array([np.nan])),
        (FORGETTING, "space.posterior.u", np.array([np.inf])),
        ({"kind": "majority"}, "t", np.array(-1.0)),
    ],
)
def test_numbers_that_no_rounds_give_are_refused(spec: dict[str, Any], name: str, made_up: F64) -> None:
    """They were taken, and a later round raised LinAlgError, TypeError or ZeroDivisionError."""
    learner = create(spec, 1)
    low = 0.0 if learner.target == "class" else -1.0
    learner.run(np.ones((4, 1)), [low, 1.0, 1.0, low])
    assert name in learner.state()
    with pytest.raises(StateFormatError):
        restore(spec, learner.state() | {name: made_up}, 1)


@pytest.mark.parametrize("kind", ["pros-n-kons", "nystrom-ridge", "nystrom-aar", "nystrom-aioli"])
@pytest.mark.parametrize("kept", ["single", "double"])
def test_a_state_in_another_precision_is_refused(kind: str, kept: str) -> None:
    """New ones, and ones that have learned."""
    specs = {name: {"kind": kind, "config": {"precision": name}} for name in ("single", "double")}
    learner = create(specs.pop(kept), dim=2)
    [other] = specs.values()
    for _ in range(2):
        with pytest.raises(StateFormatError, match=f"is in {kept} precision, the spec asks for the other"):
            restore(other, learner.state(), 2)
        learner.run([[0.5, 1.0], [1.0, -0.5]], [1.0, -1.0])


@pytest.mark.parametrize("kind", ["ons", "aioli", "fourier-aioli", "softmax-aioli"])
@pytest.mark.parametrize("size", [1, 2, 500])
def test_a_root_of_another_size_is_refused(kind: str, size: int) -> None:
    spec = {"kind": kind}
    arrays = create(spec, dim=2).state()
    [(S, u)] = [(name, f"{name[:-1]}u") for name in arrays if name.split(".")[-1] == "S"]
    assert restore(spec, arrays, 2).t == 0
    with pytest.raises(StateFormatError, match=f"'{S}' has shape"):
        restore(spec, arrays | {S: np.eye(size), u: np.zeros(size)}, 2)
