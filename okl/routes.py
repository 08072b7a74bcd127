"""The routes of the API as talks, which become the methods of `Client` and `AsyncClient`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, final

from okl.answers import Prediction, id_of
from okl.errors import ServiceError, WrongType
from okl.settings import settings_json
from okl.talks import Call, Talk, path_of, segment
from okl.values import Json, as_json, row, rows, truth, truths

Learner = Mapping[str, Any] | str

Id = Prediction | str
"""A prediction, which stands for its id, or the id."""


@final
class Routes:
    """One method for each route with a JSON answer, except `/healthz` and `/problems`. Each sends one request; `sessions`
    sends one per page."""

    # -- rounds -------------------------------------------------------------------------------------------------------

    def predict(self, session: str, x: Any, *, id: Id | None = None, wait: bool = True) -> Talk[Json]:
        """Forecast one input. The prediction waits for its truth under `id`, or an id that the service generates."""
        return (yield Call("POST", path_of(session, "predict"), {"x": row(x), "wait": wait} | _named(id)))

    def update(self, session: str, y: Any, *, id: Id | None = None, x: Any = None, weight: float = 1.0) -> Talk[Json]:
        """Report the truth of the prediction `id`, or of the input `x`."""
        weighted = {} if weight == 1.0 else {"weight": truth(weight, "/weight")}
        return (yield Call("POST", path_of(session, "update"), _truth(y, id, x) | weighted))

    def step(
        self,
        session: str,
        y: Any,
        *,
        id: Id | None = None,
        x: Any = None,
        next_x: Any,
        next_id: str | None = None,
        wait: bool = True,
    ) -> Talk[Json]:
        """Report the truth of one round and forecast the next in one request.

        `y` is the truth of the prediction `id`, or of the input `x`; `next_x` is the input of the next round. Returns
        {"update": the result of `update`, "predict": the result of `predict`}. If the truth was learned but the prediction
        was rejected, "refused" takes the place of "predict" and holds the problem.
        """
        predict = {"x": row(next_x, "/predict/x"), "wait": wait} | _named(next_id)
        body = {"update": _truth(y, id, x, at="/update"), "predict": predict}
        return (yield Call("POST", path_of(session, "step"), body))

    def rounds(self, session: str, x: Any, y: Any, *, id: Id | None = None, weight: Any = None) -> Talk[Json]:
        """Play a block of rounds: `x` is a list of inputs or a data frame, `y` a list or column of as many truths.

        `weight`, a list or column too, gives the weights of the rounds, 1 by default.
        """
        weighted = {} if weight is None else {"weight": truths(weight, "/weight")}
        body = {"x": rows(x), "y": truths(y)} | weighted | _named(id)
        return (yield Call("POST", path_of(session, "rounds"), body))

    def predict_many(
        self, session: str, xs: Any, ids: Sequence[str] | None = None, *, wait: bool = True
    ) -> Talk[list[Json]]:
        """Forecast up to 1,000 inputs, a list or a data frame, all at the same round.

        Returns the result of `predict` for each input, or {"refused": a problem} for a prediction that cannot wait.
        """
        named = {} if ids is None else {"ids": _listed(ids, "/ids")}
        body = {"x": rows(xs), "wait": wait} | named
        return (yield Call("POST", path_of(session, "predictions"), body, members=["predictions"]))

    def predict_several(
        self, sessions: Iterable[str], x: Any, *, id: Id | None = None, wait: bool = True
    ) -> Talk[list[Json]]:
        """Forecast one input with several sessions; all predictions wait under the same id.

        Returns the result of `predict` for each session, or {"session", "refused": a problem} for one that rejected it.
        """
        body = {"sessions": _listed(sessions, "/sessions"), "x": row(x), "wait": wait} | _named(id)
        return (yield Call("POST", "/sessions/predict", body, members=["predictions"]))

    def update_several(self, truths: Mapping[str, Any], *, id: Id | None = None, x: Any = None) -> Talk[list[Json]]:
        """Report a truth to each of several sessions, for the predictions that wait under `id`, or for the input `x`.

        Returns the result of `update` for each session, or {"session", "refused": a problem} for one that rejected its truth;
        the others learned theirs.
        """
        # A series of pandas has items too, but is no Mapping.
        if not hasattr(truths, "items"):
            raise WrongType.at("/sessions", f"must be a mapping from sessions to truths, not {type(truths).__name__}")
        reports = [{"session": name, "y": truth(y, f"/sessions/{i}/y")} for i, (name, y) in enumerate(truths.items())]
        body = {"sessions": reports} | _named(id) | ({} if x is None else {"x": row(x)})
        return (yield Call("POST", "/sessions/update", body, members=["updates"]))

    def step_several(self, steps: Iterable[Mapping[str, Any]]) -> Talk[list[Json]]:
        """Send a step to each of several sessions: {"session": ..., "update": {"id" or "x", "y"}, "predict": {"x", "id"}}.

        Returns the result of `step` for each session, or {"session", "refused": a problem} for one that rejected it; the
        others made their step.
        """
        return (yield Call("POST", "/sessions/step", {"steps": as_json(list(steps), "/steps")}, members=["steps"]))

    # -- sessions -----------------------------------------------------------------------------------------------------

    def create(self, name: str, learner: Learner | None = None, **settings: Any) -> Talk[Json]:
        """Create a session. `learner` is a spec or just a kind; `settings` are those of POST /sessions, such as `labels`.

        `labels` may be any values in an order, such as an array or a series. The types in `schema` may be float, int, bool
        and str (text), or dtypes of NumPy and pandas.
        """
        return (yield Call("POST", "/sessions", {"name": name} | _learner(learner) | settings_json(settings)))

    def sessions(self) -> Talk[list[Json]]:
        """List all sessions."""
        sessions: list[Json] = []
        cursor: str | None = None
        while True:
            params = {} if cursor is None else {"cursor": cursor}
            page, cursor = yield Call("GET", "/sessions", params=params, members=["sessions", "next"])
            sessions.extend(page)
            if cursor is None:
                return sessions

    def inspect(self, session: str) -> Talk[Json]:
        """Settings, metrics, verdict, fields and learner diagnostics of a session."""
        return (yield Call("GET", path_of(session)))

    def delete(self, session: str, *, at: str | None = None) -> Talk[None]:
        """Delete a session with all its data, irrevocably; with `at` only if the session is at this ETag."""
        yield Call("DELETE", path_of(session), headers=_at(at), is_final=True)

    def freeze(self, session: str, name: str, *, rule: str = "last") -> Talk[Json]:
        """Create a session `name` that never learns, and predicts as this one does now ("last") or did at a random round
        ("uniform")."""
        return (yield Call("POST", path_of(session, "freeze"), {"name": name, "rule": rule}, is_final=True))

    # -- moving -------------------------------------------------------------------------------------------------------

    def clone(self, session: str, name: str) -> Talk[Json]:
        """Create a session `name` with the same state, which then learns independently."""
        return (yield Call("POST", path_of(session, "clone"), {"name": name}, is_final=True))

    def rename(self, session: str, name: str) -> Talk[Json]:
        """Rename a session, with its waiting predictions, remembered ids and checkpoints."""
        return (yield Call("POST", path_of(session, "rename"), {"name": name}))

    def snapshot(self, session: str) -> Talk[bytes]:
        """The session's definition and state, for `put_snapshot` at this or another service."""
        return (yield Call("GET", path_of(session, "snapshot"), is_binary=True))

    def put_snapshot(self, session: str, state: bytes, *, at: str | None = None) -> Talk[Json]:
        """Replace the session's state by a snapshot, if it is at the ETag `at` ("*" for any); without `at` create a new
        session from it."""
        condition = {"If-None-Match": "*"} if at is None else _at(at)
        headers = {"Content-Type": "application/octet-stream"} | condition
        return (yield Call("PUT", path_of(session, "snapshot"), headers=headers, content=state, is_final=True))

    def checkpoint(self, session: str, name: str | None = None) -> Talk[Json]:
        """Save the current state as a checkpoint, replacing one of the same name."""
        body = {} if name is None else {"name": name}
        return (yield Call("POST", path_of(session, "checkpoints"), body, is_final=True))

    def checkpoints(self, session: str) -> Talk[list[Json]]:
        """List the checkpoints of a session by name."""
        return (yield Call("GET", path_of(session, "checkpoints"), members=["checkpoints"]))

    def delete_checkpoint(self, session: str, checkpoint: str) -> Talk[None]:
        """Delete a checkpoint; the session is unaffected."""
        yield Call("DELETE", path_of(session, "checkpoints", checkpoint), is_final=True)

    def roll_back(self, session: str, checkpoint: str, *, at: str = "*") -> Talk[Json]:
        """Return to a checkpoint if the session is at the ETag `at`; waiting predictions keep waiting."""
        body = {"checkpoint": checkpoint}
        return (yield Call("POST", path_of(session, "rollback"), body, headers=_at(at), is_final=True))

    # -- challengers --------------------------------------------------------------------------------------------------

    def attach(self, session: str, name: str, learner: Learner | None = None, *, begin: str = "now") -> Talk[Json]:
        """Attach a challenger with another learner, which learns the same rounds: from the next round on, or from the oldest
        that is retained ("journal")."""
        spec = {"kind": learner} if isinstance(learner, str) else learner
        body = {"name": name, "from": begin} | _learner(spec)
        return (yield Call("POST", path_of(session, "challengers"), body, is_final=True))

    def challengers(self, session: str) -> Talk[list[Json]]:
        """List the challengers of a session by name, each with its comparison to the session."""
        return (yield Call("GET", path_of(session, "challengers"), members=["challengers"]))

    def challenger(self, session: str, challenger: str) -> Talk[Json]:
        """The progress of a challenger, and its comparison to the session."""
        return (yield Call("GET", path_of(session, "challengers", challenger)))

    def detach(self, session: str, challenger: str) -> Talk[None]:
        """Delete a challenger with all that it has learned, irrevocably."""
        yield Call("DELETE", path_of(session, "challengers", challenger), is_final=True)

    def promote(self, session: str, challenger: str, *, at: str | None = None) -> Talk[Json]:
        """Give the session the challenger's learner and state; with `at` only if the session is at this ETag."""
        path = path_of(session, "challengers", challenger, "promote")
        return (yield Call("POST", path, headers=_at(at), is_final=True))

    # -- watching -----------------------------------------------------------------------------------------------------

    def waiting(self, session: str, *, cursor: str | None = None, limit: int = 100) -> Talk[Json]:
        """A page of the predictions that wait for their truth, and statistics of how long all have waited.

        Pass `next` of a page as `cursor` to get the following page; it is None on the last one.
        """
        page: Json = {"limit": limit} | ({} if cursor is None else {"cursor": cursor})
        return (yield Call("GET", path_of(session, "predictions"), params=page))

    def cancel(self, session: str, id: Id) -> Talk[None]:
        """Cancel a waiting prediction whose truth will never be known."""
        yield Call("DELETE", path_of(session, "predictions", id_of(id)), is_final=True)

    def history(self, session: str) -> Talk[Json]:
        """Errors over the life of a session."""
        return (yield Call("GET", path_of(session, "history")))

    def last_rounds(self, session: str, last: int = 50) -> Talk[list[Json]]:
        """The last rounds, newest first, as far back as the journal is retained."""
        return (yield Call("GET", path_of(session, "rounds"), params={"last": last}, members=["rounds"]))

    # -- the service --------------------------------------------------------------------------------------------------

    def learners(self) -> Talk[list[Json]]:
        """List the learner kinds, each with the JSON schema of its config, its defaults and its references."""
        return (yield Call("GET", "/learners"))

    def is_ready(self) -> Talk[bool]:
        """Whether the service and its store respond."""
        try:
            yield Call("GET", "/readyz")
        except ServiceError:
            return False
        return True

    def put_template(self, name: str, prefix: str, **settings: Any) -> Talk[Json]:
        """Create or replace a template; `settings` are those of PUT /templates/{template}: session, most, idle_s."""
        body = {"prefix": prefix} | settings_json(settings)
        return (yield Call("PUT", f"/templates/{segment(name)}", body))

    def templates(self) -> Talk[list[Json]]:
        """List the templates by name."""
        return (yield Call("GET", "/templates", members=["templates"]))

    def template(self, name: str) -> Talk[Json]:
        """The settings and the name prefix of the sessions that a template creates."""
        return (yield Call("GET", f"/templates/{segment(name)}"))

    def delete_template(self, name: str) -> Talk[None]:
        """Delete a template; the sessions that it created remain."""
        yield Call("DELETE", f"/templates/{segment(name)}")


ROUTES: Final = Routes()


def _truth(y: Any, id: Id | None, x: Any, at: str = "") -> Json:
    """The body of an update, or its part `at` of one."""
    return {"y": truth(y, f"{at}/y")} | _named(id) | ({} if x is None else {"x": row(x, f"{at}/x")})


def _named(id: Id | None) -> Json:
    return {} if id is None else {"id": id_of(id)}


def _listed(names: Iterable[str], at: str) -> list[str]:
    """Names or ids as a list. Raises WrongType for a single one, whose letters would be taken for names."""
    if isinstance(names, str):
        raise WrongType.at(at, f"must be a list, not one string; give [{names!r}]")
    return list(names)


def _learner(learner: Learner | None) -> Json:
    return {} if learner is None else {"learner": as_json(learner, "/learner")}


def _at(etag: str | None) -> dict[str, str]:
    return {} if etag is None else {"If-Match": etag}
