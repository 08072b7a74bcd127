"""Sessions as things: created, listed, inspected, deleted, made again."""

from __future__ import annotations

from typing import Any, Literal

import pytest

import okl_core
from okl_core.kernels.kernels import Linear
from service.demo_data import magic
from tests.service.api import Api, serving, serving_on
from tests.service.definitions import MEAN, POMDR

pytestmark = pytest.mark.anyio

X, Y = magic()


async def test_inspection_says_everything(api: Api) -> None:
    created = await api.create(POMDR, labels=["no", "yes"], snapshot_every=2, expires_s=60.0)
    assert (created["t"], created["dim"], created["updated_at"]) == (0, None, None)
    assert created["metrics"]["mean_loss"] is None
    learner = okl_core.create(POMDR, 2)
    await api.update("yes", x=[0.0, 1.0])
    learner.update(X[0][:2] * 0.0 + [0.0, 1.0], 1.0)
    await api.update("no", x=[1.0, 1.0])
    learner.update(X[0][:2] * 0.0 + [1.0, 1.0], -1.0)
    await api.update("no", x=[1.0, 0.0])
    learner.update(X[0][:2] * 0.0 + [1.0, 0.0], -1.0)
    await api.predict([0.0, 0.0])
    found = await api.inspect()
    assert (found["name"], found["kind"], found["t"], found["waiting"], found["dim"]) == ("s", "pomdr", 3, 1, 2)
    assert found["learner"] == {"kind": "pomdr", "seed": 0, "lags": 0, "config": POMDR["config"]}
    assert found["describe"] == learner.describe()
    assert found["bytes"] == learner.nbytes
    assert [one["name"] for one in found["fields"]] == ["0", "1"]
    assert not found["warming_up"]
    assert found["settings"] | {"labels": ["no", "yes"], "snapshot_every": 2, "expires_s": 60.0} == found["settings"]
    metrics = found["metrics"]
    assert (metrics["rounds"], metrics["window"]) == (3, 3)
    assert metrics["mean_loss"] == pytest.approx(metrics["loss"] / 3)
    assert metrics["mistake_rate"] == pytest.approx(metrics["mistakes"] / 3)
    storage = found["storage"]
    assert (storage["snapshot_round"], storage["journal_rounds"]) == (2, 1)
    assert storage["snapshot_bytes"] > 0
    assert storage["journal_bytes"] > 0
    assert found["created_at"] <= storage["snapshot_at"] <= found["updated_at"]


async def test_what_to_beware_of_is_told(api: Api) -> None:
    assert (await api.create(POMDR))["cautions"] == []
    polynomial = {"kind": "kons", "config": {"kernel": {"kind": "polynomial"}, "loss": "squared-hinge"}}
    created = await api.create(polynomial, name="other", labels=["no", "yes"])
    assert "another processor" in created["cautions"][0]


async def test_before_the_first_snapshot(api: Api) -> None:
    await api.create()
    storage = (await api.inspect())["storage"]
    assert storage == {
        "journal_rounds": 0,
        "journal_bytes": 0,
        "snapshot_round": None,
        "snapshot_bytes": 0,
        "snapshot_at": None,
        "tail_bytes": 0,
        "waiting_bytes": 0,
        "remembered": 0,
        "remembered_bytes": 0,
    }


async def test_the_list_has_pages_in_the_order_of_names(api: Api) -> None:
    names = [f"s{i:02}" for i in range(25)]
    for name in reversed(names):
        await api.create(MEAN, name)
    await api.update(1.0, "s03", x=[1.0])
    await api.predict([1.0], "s03")
    found: list[dict[str, Any]] = []
    cursor, sizes = "", []
    while cursor is not None:
        query = f"?limit=10&cursor={cursor}" if cursor else "?limit=10"
        page = await api.call("GET", f"/sessions{query}")
        found += page["sessions"]
        sizes.append(len(page["sessions"]))
        cursor = page["next"]
    assert [entry["name"] for entry in found] == names
    assert sizes == [10, 10, 5]
    one = found[3]
    assert (one["kind"], one["t"], one["waiting"]) == ("mean", 1, 1)
    assert one["created_at"] <= one["updated_at"]
    assert await api.call("GET", "/sessions?cursor=s99") == {"sessions": [], "next": None}


async def test_if_match_deletes_only_what_the_client_has_seen(api: Api) -> None:
    await api.create()
    seen = await api.http.get("/sessions/s")
    etag = seen.headers["etag"]
    assert etag == seen.json()["etag"]
    await api.update(1.0, x=[1.0])
    problem = await api.refused("precondition-failed", "DELETE", "/sessions/s", headers={"If-Match": etag})
    assert (problem["session"], problem["etag"]) == ("s", (await api.inspect())["etag"])
    await api.call("DELETE", "/sessions/s", status=204, headers={"If-Match": (await api.inspect())["etag"]})
    await api.refused("session-not-found", "DELETE", "/sessions/s", headers={"If-Match": etag})
    await api.create()
    await api.refused("precondition-failed", "DELETE", "/sessions/s", headers={"If-Match": etag})


async def test_if_match_is_any_session_or_a_list_of_tags(api: Api) -> None:
    body, old = {"x": [[1.0]], "y": [1.0]}, f'"0-{"0" * 32}"'
    await api.create()
    await api.call("POST", "/sessions/s/checkpoints", {"name": "start"}, status=201)
    state = {"content": (await api.http.get("/sessions/s/snapshot")).content}
    routes: list[tuple[str, str, Any, dict[str, Any]]] = [
        ("POST", "/sessions/s/rounds", body, {}),
        ("POST", "/sessions/s/rollback", {"checkpoint": "start"}, {}),
        ("PUT", "/sessions/s/snapshot", None, state),
        ("DELETE", "/sessions/s", None, {}),
    ]
    for method, path, sent, more in routes:

        def headers(tag: str, path: str = path) -> dict[str, str]:
            return {"If-Match": tag} | ({"Content-Type": "application/octet-stream"} if "snapshot" in path else {})

        for tag in ('"nope"', '"*"', '""', f"W/{(await api.inspect())['etag']}", f'{old}, "a,b"'):
            await api.refused("precondition-failed", method, path, sent, headers=headers(tag), **more)
        for tag in ("nope", "", '*, "a"', '"a" "b"'):
            problem = await api.refused("invalid-request", method, path, sent, headers=headers(tag), **more)
            assert problem["detail"].startswith("If-Match: must be *, or a list of tags")
        listed = f'"a",, {old} ,{(await api.inspect())["etag"]}'
        status = 204 if method == "DELETE" else 200
        await api.call(method, path, sent, status=status, headers=headers(listed), **more)
        if method == "DELETE":
            await api.refused("session-not-found", method, path, sent, headers=headers("*"), **more)
            await api.create()
        await api.call(method, path, sent, status=status, headers=headers("*"), **more)


async def test_the_etag_is_where_the_session_stands(store_url: str) -> None:
    """The same at each worker; another after a round, after a prediction the same, and never that of a session before."""
    async with serving(store_url) as one, serving(store_url) as other:
        etags = [(await one.create())["etag"]]
        await other.predict([1.0])
        assert (await other.inspect())["etag"] == etags[0]
        await other.update(1.0, x=[1.0])
        etags += [(await api.inspect())["etag"] for api in (one, other)]
        assert etags[1] == etags[2]
        await one.call("DELETE", "/sessions/s", status=204)
        await one.create()
        await one.update(1.0, x=[1.0])
        etags.append((await other.inspect())["etag"])
        assert len(set(etags)) == 3


async def test_a_deleted_session_is_gone(api: Api) -> None:
    await api.create()
    await api.predict([1.0], id="p")
    await api.call("DELETE", "/sessions/s", status=204)
    for method, path, body in (
        ("GET", "/sessions/s", None),
        ("DELETE", "/sessions/s", None),
        ("POST", "/sessions/s/predict", {"x": [1.0]}),
        ("POST", "/sessions/s/predict", {"x": [1.0], "wait": False}),
        ("POST", "/sessions/s/update", {"id": "p", "y": 1.0}),
        ("POST", "/sessions/s/rounds", {"x": [[1.0]], "y": [1.0]}),
    ):
        assert (await api.refused("session-not-found", method, path, body))["session"] == "s"
    assert (await api.call("GET", "/sessions"))["sessions"] == []
    assert (await api.create())["t"] == 0


FIRST_CALLS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "predict": ("predict", {"x": [1.0, 2.0, 3.0]}, {"t": 2, "value": 7.0}),
    "predict, not waiting": ("predict", {"x": [1.0, 2.0, 3.0], "wait": False}, {"t": 2, "value": 7.0}),
    "update": ("update", {"x": [1.0, 2.0, 3.0], "y": 7.0}, {"t": 3}),
    "update with an id": ("update", {"x": [1.0, 2.0, 3.0], "y": 7.0, "id": "p"}, {"t": 3}),
    "rounds": ("rounds", {"x": [[1.0, 2.0, 3.0]], "y": [7.0]}, {"t": 3}),
    "rounds with an id": ("rounds", {"x": [[1.0, 2.0, 3.0]], "y": [7.0], "id": "p"}, {"t": 3}),
}


@pytest.mark.parametrize(("action", "body", "expected"), FIRST_CALLS.values(), ids=FIRST_CALLS)
async def test_made_again_while_another_worker_has_the_old_one(
    store_url: str, action: str, body: dict[str, Any], expected: dict[str, Any]
) -> None:
    """The other worker's first call is already about the new session: another dimension, other truths, its own ids."""
    async with serving(store_url) as one, serving(store_url) as other:
        await one.create()
        for api in (one, other):
            await api.update(1.0, x=[1.0])
            await api.predict([1.0], id=f"{api is one}")
        await other.predict([1.0], id="p")
        await one.call("DELETE", "/sessions/s", status=204)
        await one.create()
        await one.rounds([[1.0, 2.0, 3.0]] * 2, [7.0, 7.0])
        answer = await other.call("POST", f"/sessions/s/{action}", body)
        assert answer | expected == answer
        assert await one.inspect() == await other.inspect()


async def test_an_old_prediction_is_not_one_of_the_new_session(store_url: str) -> None:
    async with serving(store_url) as one, serving(store_url) as other:
        await one.create()
        await other.predict([1.0], id="p")
        await one.call("DELETE", "/sessions/s", status=204)
        await one.create()
        await other.refused("prediction-not-found", "POST", "/sessions/s/update", {"id": "p", "y": 1.0})
        assert (await other.inspect())["t"] == 0


async def test_inspecting_a_session_made_again(store_url: str) -> None:
    async with serving(store_url) as one, serving(store_url) as other:
        await one.create()
        await other.update(1.0, x=[1.0])
        await one.call("DELETE", "/sessions/s", status=204)
        await one.create(POMDR)
        assert await other.inspect() == await one.inspect()


async def test_a_deleted_session_is_gone_for_every_worker(store_url: str) -> None:
    async with serving(store_url) as one, serving(store_url) as other:
        await one.create()
        await other.update(1.0, x=[1.0])
        await one.call("DELETE", "/sessions/s", status=204)
        await other.refused("session-not-found", "POST", "/sessions/s/predict", {"x": [1.0]})
        await other.refused("session-not-found", "POST", "/sessions/s/update", {"x": [1.0], "y": 1.0})


@pytest.mark.parametrize(
    ("kind", "option"),
    [("auto", '"truth": "numbers"'), ("pool", '"truth": "numbers"'), ("kernel-ogd", '"loss": "squared"')],
)
async def test_a_learner_of_labels_names_the_option_that_takes_numbers(memory: Api, kind: str, option: str) -> None:
    settings = {"name": "s", "learner": kind, "y_range": [0, 1]}
    problem = await memory.refused("invalid-request", "POST", "/sessions", settings)
    assert f'of numbers: {{"kind": "{kind}", "config": {{{option}}}}}' in problem["detail"]


@pytest.mark.parametrize("declared", ["num", {"type": "num"}])
async def test_a_type_that_is_none(memory: Api, declared: Any) -> None:
    problem = await memory.refused("invalid-request", "POST", "/sessions", {"name": "s", "schema": {"a": declared}})
    assert "there is no type 'num'; did you mean `number`? Known: number, boolean" in problem["detail"]


async def test_a_truth_of_null(memory: Api) -> None:
    await memory.call("POST", "/sessions", {"name": "s", "labels": ["n", "y"]}, status=201)
    problem = await memory.refused("wrong-type", "POST", "/sessions/s/update", {"x": [1.0], "y": None})
    assert problem["errors"] == [{"pointer": "/y", "detail": "must be a number, a string or a boolean, not null"}]


async def test_the_catalogue(memory: Api) -> None:
    found = {entry["kind"]: entry for entry in await memory.call("GET", "/learners")}
    assert sorted(found) == okl_core.learner_kinds()
    for kind, entry in found.items():
        assert entry["summary"], kind
        assert entry["target"] in ("binary", "class", "real", "any")
        assert entry["defaults"].keys() == entry["config_schema"].get("properties", {}).keys()
        created = await memory.create({"kind": kind, "config": entry["defaults"]}, kind)
        assert created["learner"]["config"] == entry["defaults"]


class AsLinear(Linear):
    kind: Literal["as-linear"] = "as-linear"  # type: ignore[assignment]


async def test_the_catalogue_has_what_is_registered_later(memory: Api, own_registry: None) -> None:
    assert "as-linear" not in str(await memory.call("GET", "/learners"))
    okl_core.register_kernel(AsLinear)
    found = {entry["kind"]: entry for entry in await memory.call("GET", "/learners")}
    assert "as-linear" in str(found["kons"]["config_schema"])


async def test_every_learner_lives_through_a_session(memory: Api) -> None:
    """With its defaults: predict, update, rounds, and a worker that reads it from the store."""
    for entry in await memory.call("GET", "/learners"):
        kind = entry["kind"]
        # Classes that grow begin with 0; labels are known from the start.
        await memory.create({"kind": kind}, kind, **({"labels": [0, 1]} if entry["target"] == "class" else {}))
        y = {"binary": Y, "class": (Y > 0.0).astype(float)}.get(entry["target"], X[:, 1])
        rows = X[:, : entry["dims"]].tolist()
        for row in range(5):
            prediction = await memory.predict(rows[row], kind)
            await memory.update(y[row], kind, id=prediction["id"])
        await memory.rounds(rows[5:15], y[5:15].tolist(), kind)
        live = await memory.predict(rows[40], kind, wait=False)
        async with serving_on(memory.store) as other:
            assert await other.predict(rows[40], kind, wait=False) == live
