"""`Client` and `AsyncClient`: the routes of the API as methods, its problems as the exceptions of `okl.errors`."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from operator import itemgetter
from typing import Any, TypeVar

import httpx

from okl.addresses import checked_url, headers_of, is_this_machine, tls_mistake
from okl.errors import ServiceError, Unreachable, WrongType
from okl.events import Event, EventReader
from okl.forks import PerProcess
from okl.masking import shown_url
from okl.problems import NO_JSON, error_of, no_service
from okl.routes import ROUTES, Learner, Routes
from okl.session import AsyncSession, Session
from okl.stream import AsyncStream, Stream
from okl.talks import Call, Talk, async_method, hold, hold_async, path_of, speaker, sync_method

DEFAULT_URL = "http://127.0.0.1:8000"

KEEP_ALIVE_S = 4.0
"""Less than the 5 s after which the service closes an idle connection, where a request sent at that moment is lost."""

T = TypeVar("T")


@speaker
class Client:
    """A connection to a service. It must not be used by several threads at once; a forked process gets its own connection.

    Every call raises the ServiceError that the service answered, or Unreachable if there is no answer from `url`. Inputs are
    lists, dictionaries, NumPy arrays, or rows and data frames of pandas, polars or any library that narwhals reads. NaN and
    NaT are sent as null, dates as ISO 8601, durations in seconds.

        with Client() as okl:
            okl.create("clicks", labels=["no", "yes"])
            prediction = okl.predict("clicks", {"page": "home", "seconds": 4.2})
            okl.update("clicks", "yes", id=prediction["id"])

    Each call is one request and returns the answer's JSON. `session` returns an object that generates ids, retries and
    returns typed answers.
    """

    def __init__(self, url: str = DEFAULT_URL, timeout_s: float = 60.0, key: str | None = None) -> None:
        """`key` is an API key, for a service that requires one; the default is the environment variable OKL_KEY."""
        self.url = checked_url(url)
        self._talks, self._headers = ROUTES, headers_of(key)
        self._http = PerProcess(lambda: httpx.Client(**_connection(url, timeout_s, self._headers)))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.get().close()

    # rounds
    predict = sync_method(Routes.predict)
    update = sync_method(Routes.update)
    step = sync_method(Routes.step)
    rounds = sync_method(Routes.rounds)
    predict_many = sync_method(Routes.predict_many)
    predict_several = sync_method(Routes.predict_several)
    update_several = sync_method(Routes.update_several)
    step_several = sync_method(Routes.step_several)

    # sessions
    create = sync_method(Routes.create)
    sessions = sync_method(Routes.sessions)
    inspect = sync_method(Routes.inspect)
    delete = sync_method(Routes.delete)
    freeze = sync_method(Routes.freeze)

    # moving
    clone = sync_method(Routes.clone)
    rename = sync_method(Routes.rename)
    snapshot = sync_method(Routes.snapshot)
    put_snapshot = sync_method(Routes.put_snapshot)
    checkpoint = sync_method(Routes.checkpoint)
    checkpoints = sync_method(Routes.checkpoints)
    delete_checkpoint = sync_method(Routes.delete_checkpoint)
    roll_back = sync_method(Routes.roll_back)

    # challengers
    attach = sync_method(Routes.attach)
    challengers = sync_method(Routes.challengers)
    challenger = sync_method(Routes.challenger)
    detach = sync_method(Routes.detach)
    promote = sync_method(Routes.promote)

    # watching
    waiting = sync_method(Routes.waiting)
    cancel = sync_method(Routes.cancel)
    history = sync_method(Routes.history)
    last_rounds = sync_method(Routes.last_rounds)

    # the service
    learners = sync_method(Routes.learners)
    is_ready = sync_method(Routes.is_ready)
    put_template = sync_method(Routes.put_template)
    templates = sync_method(Routes.templates)
    template = sync_method(Routes.template)
    delete_template = sync_method(Routes.delete_template)

    # more than one answer

    def session(self, name: str, learner: Learner | None = None, **settings: Any) -> Session:
        """The session as an object; created as by `create` if it does not exist and a learner or settings are given.

        One that exists keeps its own learner and settings, whichever are given. Without any, no request is sent: if there is
        no such session, the first call of the object raises SessionNotFound.
        """
        return Session(self, name, learner, settings)

    def stream(self, session: str) -> Stream:
        """A socket to the session for many rounds in flight at once, as a context manager. See `Stream.ask`."""
        return Stream(self.url, session, self._headers)

    def events(self, session: str, last_id: str | None = None) -> Generator[Event]:
        """Yield (event id, entry of the session list) after each change of the session, from the event `last_id` on.

        The iterator ends when the session is deleted or the worker stops. Raises Unreachable if the connection breaks.
        """
        reader = EventReader()
        try:
            with self._http.get().stream("GET", path_of(session, "events"), headers=_since(last_id)) as response:
                if not response.is_success:
                    response.read()
                    raise error_of(response.status_code, response.content, response.headers.get("Retry-After"))
                for part in response.iter_bytes():
                    yield from reader.read(part)
        except httpx.RequestError as error:
            raise _cut(session, self.url, error) from error

    def send(self, call: Call) -> Any:
        """Send one request and return its answer."""
        try:
            response = self._http.get().request(call.method, call.path, **_request(call))
        except httpx.RequestError as error:
            raise _unreachable(self.url, error) from error
        return _answer(call, response)

    def _held(self, talk: Talk[T]) -> T:
        return hold(talk, self.send)


@speaker
class AsyncClient:
    """`Client` for asyncio: the same methods, answers and errors, each call awaited. Tasks may share one.

    async with AsyncClient() as okl:
        clicks = await okl.session("clicks", labels=["no", "yes"])
        prediction = await clicks.predict({"page": "home", "seconds": 4.2})
        await clicks.update(prediction, "yes")
    """

    def __init__(self, url: str = DEFAULT_URL, timeout_s: float = 60.0, key: str | None = None) -> None:
        """`key` is an API key, for a service that requires one; the default is the environment variable OKL_KEY."""
        self.url = checked_url(url)
        self._talks, self._headers = ROUTES, headers_of(key)
        self._http = PerProcess(lambda: httpx.AsyncClient(**_connection(url, timeout_s, self._headers)))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.get().aclose()

    # rounds
    predict = async_method(Routes.predict)
    update = async_method(Routes.update)
    step = async_method(Routes.step)
    rounds = async_method(Routes.rounds)
    predict_many = async_method(Routes.predict_many)
    predict_several = async_method(Routes.predict_several)
    update_several = async_method(Routes.update_several)
    step_several = async_method(Routes.step_several)

    # sessions
    create = async_method(Routes.create)
    sessions = async_method(Routes.sessions)
    inspect = async_method(Routes.inspect)
    delete = async_method(Routes.delete)
    freeze = async_method(Routes.freeze)

    # moving
    clone = async_method(Routes.clone)
    rename = async_method(Routes.rename)
    snapshot = async_method(Routes.snapshot)
    put_snapshot = async_method(Routes.put_snapshot)
    checkpoint = async_method(Routes.checkpoint)
    checkpoints = async_method(Routes.checkpoints)
    delete_checkpoint = async_method(Routes.delete_checkpoint)
    roll_back = async_method(Routes.roll_back)

    # challengers
    attach = async_method(Routes.attach)
    challengers = async_method(Routes.challengers)
    challenger = async_method(Routes.challenger)
    detach = async_method(Routes.detach)
    promote = async_method(Routes.promote)

    # watching
    waiting = async_method(Routes.waiting)
    cancel = async_method(Routes.cancel)
    history = async_method(Routes.history)
    last_rounds = async_method(Routes.last_rounds)

    # the service
    learners = async_method(Routes.learners)
    is_ready = async_method(Routes.is_ready)
    put_template = async_method(Routes.put_template)
    templates = async_method(Routes.templates)
    template = async_method(Routes.template)
    delete_template = async_method(Routes.delete_template)

    # more than one answer

    async def session(self, name: str, learner: Learner | None = None, **settings: Any) -> AsyncSession:
        """The session as an object; created as by `create` if it does not exist and a learner or settings are given.

        One that exists keeps its own learner and settings, whichever are given. Without any, no request is sent: if there is
        no such session, the first call of the object raises SessionNotFound.
        """
        return await AsyncSession.made(self, name, learner, settings)

    def stream(self, session: str) -> AsyncStream:
        """A socket to the session for many rounds in flight at once, as an async context manager. See `AsyncStream.ask`."""
        return AsyncStream(self.url, session, self._headers)

    async def events(self, session: str, last_id: str | None = None) -> AsyncGenerator[Event]:
        """Yield (event id, entry of the session list) after each change of the session, from the event `last_id` on.

        The iterator ends when the session is deleted or the worker stops. Raises Unreachable if the connection breaks.
        """
        reader = EventReader()
        try:
            async with self._http.get().stream("GET", path_of(session, "events"), headers=_since(last_id)) as response:
                if not response.is_success:
                    await response.aread()
                    raise error_of(response.status_code, response.content, response.headers.get("Retry-After"))
                async for part in response.aiter_bytes():
                    for event in reader.read(part):
                        yield event
        except httpx.RequestError as error:
            raise _cut(session, self.url, error) from error

    async def send(self, call: Call) -> Any:
        """Send one request and return its answer."""
        try:
            response = await self._http.get().request(call.method, call.path, **_request(call))
        except httpx.RequestError as error:
            raise _unreachable(self.url, error) from error
        return _answer(call, response)

    async def _held(self, talk: Talk[T]) -> T:
        return await hold_async(talk, self.send)


def _connection(url: str, timeout_s: float, headers: dict[str, str]) -> dict[str, Any]:
    # Loading the CA certificates takes 75 ms of CPU, and plain http does not need them.
    is_verified = not url.lower().startswith("http:")
    limits = httpx.Limits(keepalive_expiry=KEEP_ALIVE_S)
    options = {"base_url": url, "timeout": timeout_s, "limits": limits, "verify": is_verified, "headers": headers}
    # The environment's proxy must not be used for this machine.
    return options | ({"mounts": {f"all://{httpx.URL(url).netloc.decode()}": None}} if is_this_machine(url) else {})


def _request(call: Call) -> dict[str, Any]:
    content, headers = call.content, dict(call.headers)
    if call.json is not None:
        content, headers["Content-Type"] = _encoded(call.json), "application/json"
    return {"params": call.params, "headers": headers, "content": content}


def _encoded(body: Any) -> bytes:
    # Escaped, an unpaired surrogate reaches the service, which refuses it by its place.
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise WrongType(f"The request has no JSON form: {error}.", errors=[]) from error


def _answer(call: Call, response: httpx.Response) -> Any:
    """The content of an answer. Raises its ServiceError, or one for an answer that no okl service gives."""
    if not response.is_success:
        raise error_of(response.status_code, response.content, response.headers.get("Retry-After"))
    if call.is_binary:
        return response.content
    if not response.content:
        return None
    try:
        document = response.json()
        return itemgetter(*call.members)(document) if call.members else document
    except (*NO_JSON, TypeError, KeyError) as error:
        raise no_service(response.content) from error


def _unreachable(url: str, error: httpx.RequestError) -> ServiceError:
    if isinstance(error, httpx.TimeoutException):
        return Unreachable(f"The service at {shown_url(url)} did not answer in time.")
    return tls_mistake(url, error) or Unreachable(
        f"No service answers at {shown_url(url)} ({error}); start one with `okl serve`."
    )


def _since(last_id: str | None) -> dict[str, str]:
    return {"Accept": "text/event-stream"} | ({} if last_id is None else {"Last-Event-ID": last_id})


def _cut(session: str, url: str, error: httpx.RequestError) -> ServiceError:
    return tls_mistake(url, error) or Unreachable(
        f"The events of {session!r} from {shown_url(url)} were cut ({error})."
    )


def local_url(host: str, port: int, scheme: str = "http") -> str:
    """URL at which a service that listens on this address is reachable from the same machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
