"""The routes of the API as talks: what is sent, and what is returned of the answer. `Client` and `AsyncClient` hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, final

from okl.errors import ServiceError
from okl.talks import Call, Json, Talk, path_of, segment
from okl.values import as_json, column, row, rows

Learner = Mapping[str, Any] | str


@final
class Routes:
    """A method a route; each makes one request, `sessions` one a page."""

    # -- rounds -------------------------------------------------------------------------------------------------------

    def predict(self, session: str, x: Any, *, id: str | None = None, wait: bool = True) -> Talk[Json]:
        """The forecast for one input, which waits for its truth under `id`, or under one that the service makes."""
        return (yield Call("POST", path_of(session, "predict"), {"x": row(x), "wait": wait} | _named(id)))

    def update(self, session: str, y: Any, *, id: str | None = None, x: Any = None, weight: float = 1.0) -> Talk[Json]:
        """The truth of the prediction `id`, or of the input `x`."""
        weighs = {} if weight == 1.0 else {"weight": as_json(weight)}
        return (yield Call("POST", path_of(session, "update"), _truth(y, id, x) | weighs))

    def step(
        self,
        session: str,
        y: Any,
        *,
        id: str | None = None,
        x: Any = None,
        next_x: Any,
        next_id: str | None = None,
        wait: bool = True,
    ) -> Talk[Json]:
        """Report the truth of one round and ask for the prediction of the next, in one request.

        The truth is that of the prediction `id`, or of the input `x`; `next_x` is the input of the next round. Returns
        {"update": what `update` returns, "predict": what `predict` returns}. Where the truth was taken and the prediction
        cannot be given, "refused" in place of "predict" is the problem that says why.
        """
        predict = {"x": row(next_x), "wait": wait} | _named(next_id)
        return (yield Call("POST", path_of(session, "step"), {"update": _truth(y, id, x), "predict": predict}))

    def rounds(self, session: str, x: Any, y: Any, *, id: str | None = None) -> Talk[Json]:
        """`x` is a list of inputs or a frame with a row each, `y` a list or a column of as many truths."""
        return (yield Call("POST", path_of(session, "rounds"), {"x": rows(x), "y": column(y)} | _named(id)))

    def predict_many(
        self, session: str, xs: Any, ids: Sequence[str] | None = None, *, wait: bool = True
    ) -> Talk[list[Json]]:
        """What `predict` returns of each input, or {"refused": a problem} where one could not be kept.

        `xs` is a list of inputs or a frame with a row each, 1,000 at most; all are predicted at the same round.
        """
        named = {} if ids is None else {"ids": list(ids)}
        found = yield Call("POST", path_of(session, "predictions"), {"x": rows(xs), "wait": wait} | named)
        return found["predictions"]

    def predict_several(
        self, sessions: Iterable[str], x: Any, *, id: str | None = None, wait: bool = True
    ) -> Talk[list[Json]]:
        """What `predict` returns of each session, or {"session", "refused": a problem} where one gives no prediction.

        All of them wait under the same id.
        """
        body = {"sessions": list(sessions), "x": row(x), "wait": wait} | _named(id)
        return (yield Call("POST", "/sessions/predict", body))["predictions"]

    def update_several(self, truths: Mapping[str, Any], *, id: str | None = None, x: Any = None) -> Talk[list[Json]]:
        """Report the truth of each session: of the predictions that wait under `id`, or of the input `x`.

        What `update` returns of each session, or {"session", "refused": a problem} where one took no truth; the others did.
        """
        told = [{"session": name, "y": as_json(y)} for name, y in truths.items()]
        body = {"sessions": told} | _named(id) | ({} if x is None else {"x": row(x)})
        return (yield Call("POST", "/sessions/update", body))["updates"]

    def step_several(self, steps: Iterable[Mapping[str, Any]]) -> Talk[list[Json]]:
        """What `step` returns of each session, or {"session", "refused": a problem}; the others did theirs.

        A step is {"session": ..., "update": {"id" or "x", "y"}, "predict": {"x", "id"}}.
        """
        return (yield Call("POST", "/sessions/step", {"steps": as_json(list(steps))}))["steps"]

    # -- sessions -----------------------------------------------------------------------------------------------------

    def create(self, name: str, learner: Learner | None = None, **settings: Any) -> Talk[Json]:
        """`learner` is a spec, or a kind alone; `settings` are those of POST /sessions: labels, y_range, schema, ..."""
        return (yield Call("POST", "/sessions", {"name": name} | _learner(learner) | as_json(settings)))

    def sessions(self) -> Talk[list[Json]]:
        """All of them, page by page."""
        found: list[Json] = []
        cursor: str | None = None
        while True:
            page = yield Call("GET", "/sessions", params={} if cursor is None else {"cursor": cursor})
            found.extend(page["sessions"])
            cursor = page["next"]
            if cursor is None:
                return found

    def inspect(self, session: str) -> Talk[Json]:
        """Its settings, metrics, verdict and fields, and what its learner says of itself."""
        return (yield Call("GET", path_of(session)))

    def delete(self, session: str, *, at: str | None = None) -> Talk[None]:
        """The session with all it holds, if it is at the etag `at`; there is no way back."""
        yield Call("DELETE", path_of(session), headers=_at(at))

    def freeze(self, session: str, name: str, *, rule: str = "last") -> Talk[Json]:
        """A session `name` that predicts as this one does ("last") or did ("uniform"), and learns nothing."""
        return (yield Call("POST", path_of(session, "freeze"), {"name": name, "rule": rule}))

    # -- moving -------------------------------------------------------------------------------------------------------

    def clone(self, session: str, name: str) -> Talk[Json]:
        """A session `name` with the same state, that goes on learning on its own."""
        return (yield Call("POST", path_of(session, "clone"), {"name": name}))

    def rename(self, session: str, name: str) -> Talk[Json]:
        """With what waits, the remembered ids and its checkpoints."""
        return (yield Call("POST", path_of(session, "rename"), {"name": name}))

    def snapshot(self, session: str) -> Talk[bytes]:
        """The session's definition and state, for `put_snapshot`, here or at another service."""
        return (yield Call("GET", path_of(session, "snapshot"), is_binary=True))

    def put_snapshot(self, session: str, state: bytes, *, at: str | None = None) -> Talk[Json]:
        """Have the session go on from this state if it is at the etag `at`, or wherever it is ("*"); without `at` a new
        session is made of it."""
        says = {"If-None-Match": "*"} if at is None else _at(at)
        headers = {"Content-Type": "application/octet-stream"} | says
        return (yield Call("PUT", path_of(session, "snapshot"), headers=headers, content=state))

    def checkpoint(self, session: str, name: str | None = None) -> Talk[Json]:
        """Keep the state as it is now, in place of a checkpoint of the same name."""
        return (yield Call("POST", path_of(session, "checkpoints"), {} if name is None else {"name": name}))

    def checkpoints(self, session: str) -> Talk[list[Json]]:
        """In the order of their names."""
        return (yield Call("GET", path_of(session, "checkpoints")))["checkpoints"]

    def delete_checkpoint(self, session: str, checkpoint: str) -> Talk[None]:
        """The session stays as it is."""
        yield Call("DELETE", path_of(session, "checkpoints", checkpoint))

    def roll_back(self, session: str, checkpoint: str, *, at: str = "*") -> Talk[Json]:
        """Go on from a checkpoint, if the session is at the etag `at`; what waits goes on waiting."""
        return (yield Call("POST", path_of(session, "rollback"), {"checkpoint": checkpoint}, headers=_at(at)))

    # -- challengers --------------------------------------------------------------------------------------------------

    def attach(self, session: str, name: str, learner: Learner | None = None, *, begin: str = "now") -> Talk[Json]:
        """A challenger with another learner, which is given the same rounds: from the next on, or from the oldest that is
        kept ("journal")."""
        spec = {"kind": learner} if isinstance(learner, str) else learner
        body = {"name": name, "from": begin} | _learner(spec)
        return (yield Call("POST", path_of(session, "challengers"), body))

    def challengers(self, session: str) -> Talk[list[Json]]:
        """In the order of their names, each with how it compares to the session."""
        return (yield Call("GET", path_of(session, "challengers")))["challengers"]

    def challenger(self, session: str, challenger: str) -> Talk[Json]:
        """Where it stands, and how it compares to the session."""
        return (yield Call("GET", path_of(session, "challengers", challenger)))

    def detach(self, session: str, challenger: str) -> Talk[None]:
        """The challenger with all that it has learned; there is no way back."""
        yield Call("DELETE", path_of(session, "challengers", challenger))

    def promote(self, session: str, challenger: str, *, at: str | None = None) -> Talk[Json]:
        """The session goes on with the challenger's learner and state, if it is at the etag `at`."""
        return (yield Call("POST", path_of(session, "challengers", challenger, "promote"), headers=_at(at)))

    # -- watching -----------------------------------------------------------------------------------------------------

    def waiting(self, session: str, *, cursor: str | None = None, limit: int = 100) -> Talk[Json]:
        """A page of the predictions that wait for their truth, and how long all of them have waited.

        Give `next` of one page as `cursor` to get the page after it; it is None at the end.
        """
        page: Json = {"limit": limit} | ({} if cursor is None else {"cursor": cursor})
        return (yield Call("GET", path_of(session, "predictions"), params=page))

    def cancel(self, session: str, id: str) -> Talk[None]:
        """The truth of this prediction will never come."""
        yield Call("DELETE", path_of(session, "predictions", id))

    def history(self, session: str) -> Talk[Json]:
        """How the session has done over its life."""
        return (yield Call("GET", path_of(session, "history")))

    def last_rounds(self, session: str, last: int = 50) -> Talk[list[Json]]:
        """The newest first, as far back as the journal is kept."""
        return (yield Call("GET", path_of(session, "rounds"), params={"last": last}))["rounds"]

    # -- the service --------------------------------------------------------------------------------------------------

    def learners(self) -> Talk[list[Json]]:
        """Each kind with the JSON schema of its config, its defaults and its references."""
        return (yield Call("GET", "/learners"))

    def is_ready(self) -> Talk[bool]:
        """Does the service answer, and its store?"""
        try:
            yield Call("GET", "/readyz")
        except ServiceError:
            return False
        return True

    def put_template(self, name: str, prefix: str, **settings: Any) -> Talk[Json]:
        """`settings` are those of PUT /templates/{template}: session, most, idle_s."""
        return (yield Call("PUT", f"/templates/{segment(name)}", {"prefix": prefix} | as_json(settings)))

    def templates(self) -> Talk[list[Json]]:
        """In the order of their names."""
        return (yield Call("GET", "/templates"))["templates"]

    def template(self, name: str) -> Talk[Json]:
        """What it makes sessions of, and of which names."""
        return (yield Call("GET", f"/templates/{segment(name)}"))

    def delete_template(self, name: str) -> Talk[None]:
        """The sessions that it made stay."""
        yield Call("DELETE", f"/templates/{segment(name)}")


ROUTES: Final = Routes()


def _truth(y: Any, id: str | None, x: Any) -> Json:
    """The body that reports a truth."""
    return {"y": as_json(y)} | _named(id) | ({} if x is None else {"x": row(x)})


def _named(id: str | None) -> Json:
    return {} if id is None else {"id": id}


def _learner(learner: Learner | None) -> Json:
    return {} if learner is None else {"learner": as_json(learner)}


def _at(etag: str | None) -> dict[str, str]:
    return {} if etag is None else {"If-Match": etag}
