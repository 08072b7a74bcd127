"""What a client says and hears, apart from how it is sent: a sync client and an async one hold the same talks.

A talk is a generator. It yields each `Call` that is to be sent, is given the answer or the ServiceError that refused it, and
returns what the caller wants to know. `said` and `asked` make methods of talks.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from urllib.parse import quote

from tenacity import retry_if_exception, stop_after_delay, wait_random_exponential

from okl.errors import ServiceError, passes

T = TypeVar("T")
P = ParamSpec("P")

Talk = Generator["Call", Any, T]

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One request. Its answer is JSON, None where there is no body, or the bytes themselves."""

    method: str
    path: str
    json: Any = None
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    is_binary: bool = False


class Speaker(Protocol):
    """It holds talks, which are methods of its `_talks`."""

    _talks: Any

    def _held(self, talk: Talk[T]) -> T: ...


class AsyncSpeaker(Protocol):
    """The same, awaited."""

    _talks: Any

    def _held(self, talk: Talk[T]) -> Awaitable[T]: ...


def hold(talk: Talk[T], send: Callable[[Call], Any]) -> T:
    """Raises the ServiceError that the talk does not take."""
    try:
        call = next(talk)
        while True:
            try:
                answer = send(call)
            except ServiceError as error:
                call = talk.throw(error)
            else:
                call = talk.send(answer)
    except StopIteration as end:
        return end.value
    finally:
        talk.close()  # where sending was interrupted, what it has open, such as a progress bar, ends now


async def hold_async(talk: Talk[T], send: Callable[[Call], Awaitable[Any]]) -> T:
    """As `hold`."""
    try:
        call = next(talk)
        while True:
            try:
                answer = await send(call)
            except ServiceError as error:
                call = talk.throw(error)
            else:
                call = talk.send(answer)
    except StopIteration as end:
        return end.value
    finally:
        talk.close()


def retrying(for_s: float) -> dict[str, Any]:
    """How what was not answered is sent again: what `tenacity.Retrying` and `AsyncRetrying` are made of."""
    return {
        "retry": retry_if_exception(passes),
        "stop": stop_after_delay(for_s),
        "wait": wait_random_exponential(multiplier=0.1, max=2.0),
        "reraise": True,
    }


# -- methods ----------------------------------------------------------------------------------------------------------


def speaker(made: type[T]) -> type[T]:
    """A class whose methods are made of talks: each of them tells where it is found."""
    for name, member in vars(made).items():
        if inspect.isfunction(member):
            member.__module__, member.__qualname__ = made.__module__, f"{made.__qualname__}.{name}"
    return made


def said(talk: Callable[Concatenate[Any, P], Talk[T]]) -> Callable[Concatenate[Any, P], T]:
    """The method that holds this talk, with its parameters and its docstring."""

    def method(self: Speaker, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._held(talk(self._talks, *args, **kwargs))

    return _like(method, talk)


def asked(talk: Callable[Concatenate[Any, P], Talk[T]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The same, to be awaited."""

    async def method(self: AsyncSpeaker, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._held(talk(self._talks, *args, **kwargs))

    return _like(method, talk)


def _like(method: Any, talk: Callable[..., Any]) -> Any:
    """What is told of the talk, but for what it yields."""
    told = inspect.signature(talk)
    returns = str(told.return_annotation).removeprefix("Talk[").removesuffix("]")
    method.__signature__ = told.replace(return_annotation=returns)
    method.__name__ = talk.__name__
    method.__doc__ = talk.__doc__
    return method


# -- paths ------------------------------------------------------------------------------------------------------------


def path_of(session: str, *action: str) -> str:
    return "/".join(("/sessions", *(segment(part) for part in (session, *action))))


def segment(part: str) -> str:
    """Whatever it is made of, it leads to no other path: `..` neither."""
    return part.replace(".", "%2E") if part in (".", "..") else quote(part, safe="")
