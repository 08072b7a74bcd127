"""A client of the service: the API's calls as methods, its problems as the exceptions of `okl.errors`."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from okl.errors import ServiceError, Unreachable
from okl.events import events_in
from okl.problems import error_of
from okl.session import Session
from okl.stream import Stream
from okl.values import as_json, column, row, rows

DEFAULT_URL = "http://127.0.0.1:8000"

KEEP_ALIVE_S = 4.0
"""The service closes a connection that was idle for 5 s: a request sent at that moment would be lost."""


class Client:
    """One connection to a service; not for use from several threads at once.

    Every call raises the ServiceError that the service answered, or Unreachable if nobody does at `url`. Inputs are lists or
    dictionaries, arrays of numpy, rows and frames of pandas, polars and what else narwhals knows; NaN and NaT are sent as
    null, dates as ISO 8601, a span of time as its seconds.

        with Client() as okl:
            okl.create("clicks", labels=["no", "yes"])
            prediction = okl.predict("clicks", {"page": "home", "seconds": 4.2})
            okl.update("clicks", "yes", id=prediction["id"])

    Each call is one request and returns the answer's JSON. `session` gives an object that makes ids, tries again and returns
    typed answers.
    """

    def __init__(self, url: str = DEFAULT_URL, timeout_s: float = 60.0, key: str | None = None) -> None:
        """`key` is an API key, where the service asks for one; by default the one in the environment's OKL_KEY."""
        self.url = url
        # To read the certificates of the authorities takes 75 ms of CPU, and http has no use for them.
        is_verified = not url.lower().startswith("http:")
        limits = httpx.Limits(keepalive_expiry=KEEP_ALIVE_S)
        key = os.environ.get("OKL_KEY") if key is None else key
        self._headers = headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(base_url=url, timeout=timeout_s, limits=limits, verify=is_verified, headers=headers)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def create(self, name: str, learner: Mapping[str, Any] | str | None = None, **settings: Any) -> dict[str, Any]:
        """`learner` is a spec, or a kind alone; `settings` are those of POST /sessions: labels, y_range, schema, ..."""
        named = {} if learner is None else {"learner": as_json(learner)}
        return self._call("POST", "/sessions", {"name": name, **named, **as_json(settings)})

    def session(self, name: str, learner: Mapping[str, Any] | str | None = None, **settings: Any) -> Session:
        """The session as an object. It is made as by `create` if it is not there, and `settings` or a learner are given."""
        return Session(self, name, learner, settings)

    def sessions(self) -> list[dict[str, Any]]:
        """All of them, page by page."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = self._call("GET", "/sessions", params={} if cursor is None else {"cursor": cursor})
            found.extend(page["sessions"])
            cursor = page["next"]
            if cursor is None:
                return found

    def inspect(self, session: str) -> dict[str, Any]:
        return self._call("GET", _path(session))

    def delete(self, session: str) -> None:
        self._call("DELETE", _path(session))

    def freeze(self, session: str, name: str, *, rule: str = "last") -> dict[str, Any]:
        """A session `name` that predicts as this one does ("last") or did ("uniform"), and learns nothing."""
        return self._call("POST", _path(session, "freeze"), {"name": name, "rule": rule})

    def clone(self, session: str, name: str) -> dict[str, Any]:
        """A session `name` with the same state, that goes on learning on its own."""
        return self._call("POST", _path(session, "clone"), {"name": name})

    def rename(self, session: str, name: str) -> dict[str, Any]:
        return self._call("POST", _path(session, "rename"), {"name": name})

    def snapshot(self, session: str) -> bytes:
        """The session's definition and state, for `put_snapshot`, here or at another service."""
        return self._send("GET", _path(session, "snapshot")).content

    def put_snapshot(self, session: str, state: bytes, *, at: str | None = None) -> dict[str, Any]:
        """Have the session go on from this state if it is at the etag `at`, or wherever it is ("*"); without `at` a new
        session is made of it."""
        says = {"If-None-Match": "*"} if at is None else {"If-Match": at}
        headers = {"Content-Type": "application/octet-stream"} | says
        return self._send("PUT", _path(session, "snapshot"), content=state, headers=headers).json()

    def checkpoint(self, session: str, name: str | None = None) -> dict[str, Any]:
        """Keep the state as it is now, in place of a checkpoint of the same name."""
        return self._call("POST", _path(session, "checkpoints"), {} if name is None else {"name": name})

    def checkpoints(self, session: str) -> list[dict[str, Any]]:
        return self._call("GET", _path(session, "checkpoints"))["checkpoints"]

    def delete_checkpoint(self, session: str, checkpoint: str) -> None:
        self._call("DELETE", _path(session, "checkpoints", checkpoint))

    def roll_back(self, session: str, checkpoint: str, *, at: str = "*") -> dict[str, Any]:
        """Go on from a checkpoint, if the session is at the etag `at`; what waits goes on waiting."""
        path, headers = _path(session, "rollback"), {"If-Match": at}
        return self._send("POST", path, json={"checkpoint": checkpoint}, headers=headers).json()

    def predict(self, session: str, x: Any, *, id: str | None = None, wait: bool = True) -> dict[str, Any]:
        body: dict[str, Any] = {"x": row(x), "wait": wait}
        return self._call("POST", _path(session, "predict"), body if id is None else body | {"id": id})

    def update(
        self, session: str, y: Any, *, id: str | None = None, x: Any = None, weight: float = 1.0
    ) -> dict[str, Any]:
        body = _truth(y, id, x)
        return self._call(
            "POST", _path(session, "update"), body if weight == 1.0 else body | {"weight": as_json(weight)}
        )

    def predict_several(
        self, sessions: Iterable[str], x: Any, *, id: str | None = None, wait: bool = True
    ) -> list[dict[str, Any]]:
        """What `predict` returns of each session, or {"session", "refused": a problem} where one gives no prediction.

        All of them wait under the same id.
        """
        body: dict[str, Any] = {"sessions": list(sessions), "x": row(x), "wait": wait}
        found = self._call("POST", "/sessions/predict", body if id is None else body | {"id": id})
        return found["predictions"]

    def update_several(
        self, truths: Mapping[str, Any], *, id: str | None = None, x: Any = None
    ) -> list[dict[str, Any]]:
        """Report the truth of each session: of the predictions that wait under `id`, or of the input `x`.

        What `update` returns of each session, or {"session", "refused": a problem} where one took no truth; the others did.
        """
        body: dict[str, Any] = {"sessions": [{"session": name, "y": as_json(y)} for name, y in truths.items()]}
        if id is not None:
            body["id"] = id
        if x is not None:
            body["x"] = row(x)
        return self._call("POST", "/sessions/update", body)["updates"]

    def step_several(self, steps: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """What `step` returns of each session, or {"session", "refused": a problem}; the others did theirs.

        A step is {"session": ..., "update": {"id" or "x", "y"}, "predict": {"x", "id"}}.
        """
        return self._call("POST", "/sessions/step", {"steps": as_json(list(steps))})["steps"]

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
    ) -> dict[str, Any]:
        """Report the truth of one round and ask for the prediction of the next, in one request.

        The truth is that of the prediction `id`, or of the input `x`; `next_x` is the input of the next round. Returns
        {"update": what `update` returns, "predict": what `predict` returns}. Where the truth was taken and the prediction
        cannot be given, "refused" in place of "predict" is the problem that says why.
        """
        predict: dict[str, Any] = {"x": row(next_x), "wait": wait}
        if next_id is not None:
            predict["id"] = next_id
        return self._call("POST", _path(session, "step"), {"update": _truth(y, id, x), "predict": predict})

    def rounds(self, session: str, x: Any, y: Any, *, id: str | None = None) -> dict[str, Any]:
        """`x` is a list of inputs or a frame with a row each, `y` a list or a column of as many truths."""
        body: dict[str, Any] = {"x": rows(x), "y": column(y)}
        return self._call("POST", _path(session, "rounds"), body if id is None else body | {"id": id})

    def stream(self, session: str) -> Stream:
        """A socket to the session, for many rounds under way at once; a context manager. See `Stream.ask`."""
        return Stream(self.url, session, self._headers)

    def predict_many(
        self, session: str, xs: Any, ids: Sequence[str] | None = None, *, wait: bool = True
    ) -> list[dict[str, Any]]:
        """What `predict` returns of each input, or {"refused": a problem} where one could not be kept.

        `xs` is a list of inputs or a frame with a row each, 1,000 at most; all are predicted at the same round.
        """
        body: dict[str, Any] = {"x": rows(xs), "wait": wait}
        found = self._call("POST", _path(session, "predictions"), body if ids is None else body | {"ids": list(ids)})
        return found["predictions"]

    def waiting(self, session: str, *, cursor: str | None = None, limit: int = 100) -> dict[str, Any]:
        """A page of the predictions that wait for their truth, and how long all of them have waited.

        Give `next` of one page as `cursor` to get the page after it; it is None at the end.
        """
        page = {"limit": limit} if cursor is None else {"limit": limit, "cursor": cursor}
        return self._call("GET", _path(session, "predictions"), params=page)

    def cancel(self, session: str, id: str) -> None:
        """The truth of this prediction will never come."""
        self._call("DELETE", _path(session, "predictions", id))

    def history(self, session: str) -> dict[str, Any]:
        """How the session has done over its life."""
        return self._call("GET", _path(session, "history"))

    def last_rounds(self, session: str, last: int = 50) -> list[dict[str, Any]]:
        """The newest first, as far back as the journal is kept."""
        return self._call("GET", _path(session, "rounds"), params={"last": last})["rounds"]

    def events(self, session: str, last_id: str | None = None) -> Generator[tuple[str, dict[str, Any]]]:
        """What a list tells of the session, whenever it has changed from the event `last_id`, with the event's id.

        It ends when the session is deleted or the worker stops; Unreachable is raised where it was cut.
        """
        headers = {"Accept": "text/event-stream"} | ({} if last_id is None else {"Last-Event-ID": last_id})
        try:
            with self._http.stream("GET", _path(session, "events"), headers=headers) as response:
                if not response.is_success:
                    response.read()
                    raise error_of(response.status_code, response.content)
                yield from events_in(response.iter_bytes())
        except httpx.TransportError as error:
            raise Unreachable(f"The events of {session!r} from {self.url} were cut ({error}).") from error

    def learners(self) -> list[dict[str, Any]]:
        return self._call("GET", "/learners")

    def is_ready(self) -> bool:
        try:
            self._call("GET", "/readyz")
        except ServiceError:
            return False
        return True

    def put_template(self, name: str, prefix: str, **settings: Any) -> dict[str, Any]:
        """`settings` are those of PUT /templates/{template}: session, most, idle_s."""
        return self._call("PUT", f"/templates/{_segment(name)}", {"prefix": prefix, **as_json(settings)})

    def templates(self) -> list[dict[str, Any]]:
        return self._call("GET", "/templates")["templates"]

    def delete_template(self, name: str) -> None:
        self._call("DELETE", f"/templates/{_segment(name)}")

    def _call(self, method: str, path: str, body: Any = None, params: dict[str, Any] | None = None) -> Any:
        response = self._send(method, path, json=body, params=params)
        return response.json() if response.content else None

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **request)
        except httpx.TimeoutException as error:
            raise Unreachable(f"The service at {self.url} did not answer in time.") from error
        except httpx.TransportError as error:
            raise Unreachable(f"No service answers at {self.url} ({error}); start one with `okl serve`.") from error
        if response.is_success:
            return response
        raise error_of(response.status_code, response.content)


def _truth(y: Any, id: str | None, x: Any) -> dict[str, Any]:
    """The body that reports a truth."""
    given = {} if id is None else {"id": id}
    return {"y": as_json(y)} | given | ({} if x is None else {"x": row(x)})


def local_url(host: str, port: int, scheme: str = "http") -> str:
    """Where a service that listens at this address is reached from the same machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _path(session: str, *action: str) -> str:
    return "/".join(("/sessions", *(_segment(part) for part in (session, *action))))


def _segment(part: str) -> str:
    """Whatever it is made of, it leads to no other path: `..` neither."""
    return part.replace(".", "%2E") if part in (".", "..") else quote(part, safe="")
