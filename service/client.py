"""A client of the service: the API's calls as methods, its problems as the exceptions of `service.errors`."""

from __future__ import annotations

from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

from service.errors import PROBLEMS, ServiceError, Unreachable

DEFAULT_URL = "http://127.0.0.1:8000"

KEEP_ALIVE_S = 4.0
"""The service closes a connection that was idle for 5 s: a request sent at that moment would be lost."""


class OklClient:
    """One connection to a service; not for use from several threads at once.

    Every call raises the ServiceError that the service answered, or Unreachable if nobody does at `url`.

        with OklClient() as okl:
            okl.create("clicks", labels=["no", "yes"])
            prediction = okl.predict("clicks", {"page": "home", "seconds": 4.2})
            okl.update("clicks", "yes", id=prediction["id"])
    """

    def __init__(self, url: str = DEFAULT_URL, timeout_s: float = 60.0) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, timeout=timeout_s, limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_S))

    def __enter__(self) -> OklClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def create(self, name: str, learner: dict[str, Any] | str | None = None, **settings: Any) -> dict[str, Any]:
        """`settings` are those of POST /sessions: labels, y_range, schema, scale, ..."""
        body = {"name": name, **settings}
        return self._call("POST", "/sessions", body if learner is None else body | {"learner": learner})

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

    def predict(self, session: str, x: Any, *, id: str | None = None, wait: bool = True) -> dict[str, Any]:
        body: dict[str, Any] = {"x": x, "wait": wait}
        return self._call("POST", _path(session, "predict"), body if id is None else body | {"id": id})

    def update(self, session: str, y: Any, *, id: str | None = None, x: Any = None) -> dict[str, Any]:
        body = {"y": y, "id": id, "x": x}
        return self._call("POST", _path(session, "update"), {k: v for k, v in body.items() if v is not None})

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
        update = {"y": y, "id": id, "x": x}
        predict = {"x": next_x, "id": next_id, "wait": wait}
        return self._call(
            "POST",
            _path(session, "step"),
            {
                "update": {name: value for name, value in update.items() if value is not None},
                "predict": {name: value for name, value in predict.items() if value is not None},
            },
        )

    def rounds(self, session: str, x: list[Any], y: list[Any], *, id: str | None = None) -> dict[str, Any]:
        body: dict[str, Any] = {"x": x, "y": y}
        return self._call("POST", _path(session, "rounds"), body if id is None else body | {"id": id})

    def learners(self) -> list[dict[str, Any]]:
        return self._call("GET", "/learners")

    def is_ready(self) -> bool:
        try:
            self._call("GET", "/readyz")
        except ServiceError:
            return False
        return True

    def _call(self, method: str, path: str, body: Any = None, params: dict[str, Any] | None = None) -> Any:
        try:
            response = self._http.request(method, path, json=body, params=params)
        except httpx.TimeoutException as error:
            raise Unreachable(f"The service at {self.url} did not answer in time.") from error
        except httpx.TransportError as error:
            raise Unreachable(f"No service answers at {self.url} ({error}); start one with `okl serve`.") from error
        if response.is_success:
            return response.json() if response.content else None
        raise _error(response)


def local_url(host: str, port: int) -> str:
    """Where a service that listens at this address is reached from the same machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _path(session: str, *action: str) -> str:
    return "/".join(("/sessions", quote(session, safe=""), *action))


def _error(response: httpx.Response) -> ServiceError:
    """The exception of a problem document: the class by its type, with all members that say more than the class does."""
    try:
        document = response.json()
        slug = document["type"].rpartition("/")[2]
        detail = document["detail"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ServiceError(f"HTTP {response.status_code}: {response.text[:200]}")
    kind = PROBLEMS.get(slug, ServiceError)
    known = ("type", "title", "status", "detail") if slug in PROBLEMS else ("detail",)
    error = kind.__new__(kind)
    ServiceError.__init__(error, str(detail), **{str(k): v for k, v in document.items() if k not in known})
    return error
