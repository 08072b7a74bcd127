"""What a client is told that has a name wrong: the names there are, and the one it may have meant."""

from __future__ import annotations

from typing import Any

import pytest

from tests.service.api import Api
from tests.service.definitions import MEAN

pytestmark = pytest.mark.anyio

NEAR: list[tuple[str, Any, str, str, str]] = [
    ("/sessions", {"name": "t", "learner": MEAN, "label": [0, 1]}, "/label", "labels", "invalid-request"),
    ("/sessions", {"name": "t", "learner": {"kind": "mean", "sed": 1}}, "/learner/sed", "seed", "invalid-request"),
    (
        "/sessions",
        {"name": "t", "learner": MEAN, "scale": {"kind": "ranges", "low": [0.0], "hig": [1.0]}},
        "",
        "high",
        "invalid-request",
    ),
    (
        "/sessions",
        {"name": "t", "learner": MEAN, "schema": {"a": {"typ": "number"}}},
        "",
        "type",
        "invalid-request",
    ),
    ("/sessions", {"name": "t", "learner": "meen"}, "/learner/kind", "mean", "unknown-learner"),
    (
        "/sessions",
        {"name": "t", "learner": {"kind": "pomdr", "config": {"buget": 5}}},
        "/learner/config/buget",
        "budget",
        "invalid-config",
    ),
    ("/sessions/s/predict", {"x": [1.0], "weit": False}, "/weit", "wait", "invalid-request"),
    ("/predict", {"session": "s", "x": [1.0], "ids": "1"}, "/ids", "id", "invalid-request"),
    (
        "/step",
        {"session": "s", "update": {"y": 1.0, "idd": "a"}, "predict": {"x": [1.0]}},
        "/update/idd",
        "id",
        "invalid-request",
    ),
    ("/sessions/s/rounds", {"x": [[1.0]], "y": [1.0], "idd": "b"}, "/idd", "id", "invalid-request"),
    ("/sessions/s/rounds", {"x": [[1.0]] * 9_000, "y": [1.0] * 9_000, "idd": "b"}, "/idd", "id", "invalid-request"),
]


@pytest.mark.each
@pytest.mark.parametrize(("path", "body", "pointer", "meant", "slug"), NEAR, ids=[f"{n[0]} {n[3]}" for n in NEAR])
async def test_a_near_name_is_told(api: Api, path: str, body: Any, pointer: str, meant: str, slug: str) -> None:
    await api.create(MEAN)
    problem = await api.refused(slug, "POST", path, body)
    if slug == "unknown-learner":
        assert "mean" in problem["known"]
        assert f"did you mean `{meant}`? Known: " in problem["detail"]
        return
    told = [error["detail"] for error in problem["errors"] if error["pointer"].startswith(pointer)]
    assert any(f"did you mean `{meant}`? Known: " in detail for detail in told), problem


async def test_a_learner_may_be_a_word(api: Api) -> None:
    created = await api.create("mean")  # type: ignore[arg-type]
    assert created["kind"] == "mean"
    assert created["learner"] == {"kind": "mean", "seed": 0, "lags": 0, "config": {}}
    for wrong in (5, [], True, [["kind", "mean"]]):
        problem = await api.refused("invalid-request", "POST", "/sessions", {"name": "t", "learner": wrong})
        assert problem["errors"][0]["pointer"] == "/learner"
