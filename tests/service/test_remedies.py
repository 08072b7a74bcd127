"""What a person gets wrong, and what the answer says about it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.service.api import Api, check_problem

pytestmark = pytest.mark.anyio

FIELDS = {"hour": "number", "city": "text"}


@pytest.mark.parametrize(
    ("x", "pointer", "detail"),
    [
        ({"hours": 9, "city": "Rome"}, "/x/hours", "is not a field of this session; did you mean 'hour'?"),
        ({"hour": 9, "city": "Rome", "zz": 1}, "/x/zz", "a session without `strict` takes new fields"),
        ({"hour": 9}, "/x/city", "is missing"),
        ([9, "Rome"], "/x", "this session takes an object with the fields hour, city"),
    ],
)
async def test_a_field_of_another_name(memory: Api, x: Any, pointer: str, detail: str) -> None:
    await memory.create({"kind": "mean"}, schema=FIELDS, strict=True)
    answer = await memory.http.post("/sessions/s/predict", json={"x": x})
    [error] = check_problem(answer, "wrong-features")["errors"]
    assert error["pointer"] == pointer
    assert detail in error["detail"]


async def test_many_names_are_refused_as_quickly_as_they_are_taken(memory: Api) -> None:
    """Each was compared with all fields, in seconds."""
    await memory.create({"kind": "mean"}, schema={f"field{i}": "number" for i in range(2_000)}, strict=True)
    await memory.create({"kind": "mean"}, name="all", strict=False)
    spent: list[float] = []
    for session, status in (("all", 200), ("s", 422)):
        began = time.process_time()
        answer = await memory.http.post(
            f"/sessions/{session}/predict", json={"x": {f"feild{i}": 1.0 for i in range(6_000)}}
        )
        spent.append(time.process_time() - began)
        assert answer.status_code == status
    assert spent[1] < 4.0 * spent[0]


async def test_a_snapshot_without_a_precondition(memory: Api) -> None:
    await memory.create()
    snapshot = (await memory.http.get("/sessions/s/snapshot")).content
    headers = {"content-type": "application/octet-stream"}
    answer = await memory.http.put("/sessions/new/snapshot", content=snapshot, headers=headers)
    assert "If-None-Match: *" in check_problem(answer, "precondition-required")["detail"]
    made = await memory.http.put("/sessions/new/snapshot", content=snapshot, headers=headers | {"if-none-match": "*"})
    assert made.status_code == 201


async def test_the_truth_of_a_cancelled_prediction(memory: Api) -> None:
    await memory.create()
    await memory.predict([1.0], id="a")
    assert (await memory.http.delete("/sessions/s/predictions/a")).status_code == 204
    answer = await memory.http.post("/sessions/s/update", json={"id": "a", "y": 1.0})
    assert "it was cancelled, or" in check_problem(answer, "prediction-expired")["detail"]


async def test_lags_of_a_learner_that_takes_numbers_too(memory: Api) -> None:
    learner = {"kind": "auto", "lags": 2}
    answer = await memory.http.post("/sessions", json={"name": "s", "learner": learner})
    assert '"truth": "numbers"' in check_problem(answer, "invalid-config")["detail"]
    answer = await memory.http.post("/sessions", json={"name": "s", "learner": {"kind": "softmax-aioli", "lags": 2}})
    assert '"truth"' not in check_problem(answer, "invalid-config")["detail"]
    await memory.create(learner | {"config": {"truth": "numbers"}})


@pytest.mark.parametrize(
    ("headers", "detail"),
    [
        ({"content-type": "text/csv"}, "application/x-ndjson"),
        ({"content-type": "application/json; charset=latin-1"}, "JSON in UTF-8"),
        *(
            ({"content-type": kind, "content-encoding": "gzip"}, "'gzip'; send it without one")
            for kind in ("application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream")
        ),
    ],
)
async def test_a_body_of_another_kind(memory: Api, headers: dict[str, str], detail: str) -> None:
    await memory.create()
    answer = await memory.http.post("/sessions/s/rounds", content=b"\x1f\x8b", headers=headers)
    assert detail in check_problem(answer, "unsupported-media-type")["detail"]


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("POST", "/sessions/s/stream", "application/x-ndjson"),
        ("PUT", "/sessions/s/snapshot", "application/octet-stream"),
    ],
)
async def test_a_compressed_body(memory: Api, method: str, path: str, kind: str) -> None:
    await memory.create()
    headers = {"content-type": kind, "content-encoding": "br", "if-match": "*"}
    answer = await memory.http.request(method, path, content=b"\x1f\x8b", headers=headers)
    assert "'br'" in check_problem(answer, "unsupported-media-type")["detail"]


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/predict/", "did you mean /predict?"),
        ("/sessions/s/", "did you mean /sessions/s?"),
        ("/sesions", "did you mean /sessions?"),
        ("/health", "did you mean /healthz?"),
        ("/wp-login.php", "see /docs."),
        ("/nope", "see /docs."),
    ],
)
async def test_a_path_that_is_nearly_right(memory: Api, path: str, near: str) -> None:
    assert check_problem(await memory.http.get(path), "not-found")["detail"].endswith(near)


async def test_labels_of_two_types_are_told(memory: Api) -> None:
    await memory.call("POST", "/sessions", {"name": "s"}, status=201)
    await memory.rounds([[0.0]] * 20, ["no", "yes"] * 10)
    assert (await memory.inspect())["cautions"] == []
    await memory.rounds([[0.0]], [3])
    [caution] = (await memory.inspect())["cautions"]
    assert caution == 'Some labels are strings and others are not, so 3 and "3" are two labels.'


async def test_names_that_are_ignored_are_told(memory: Api) -> None:
    await memory.create(
        {"kind": "aioli"}, labels=["no", "yes"], warmup_rounds=8, strict=False, scale={"kind": "learned"}
    )
    records = [{"hour": float(i % 24), "city": "Rome"} for i in range(10)]
    await memory.rounds(records, ["no", "yes"] * 5)
    assert (await memory.inspect())["cautions"] == []
    await memory.rounds([{"Hour": 3.0, "city": "Oslo"}] * 3, ["no"] * 3)
    [caution] = (await memory.inspect())["cautions"]
    assert caution.endswith(" left: Hour.")
    await memory.rounds([{"Hour": 3.0}] * 20, ["no"] * 20)
    assert (await memory.inspect())["cautions"] == []
