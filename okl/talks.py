"""Client logic without I/O: the sync and the async client run the same talks.

A talk is a generator. It yields each `Call` to send, receives its answer or the ServiceError that rejected it, and returns
the caller's result. `sync_method` and `async_method` turn talks into sync and async methods.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from urllib.parse import quote

from tenacity import retry_if_exception, stop_after_delay, wait_random_exponential

from okl.errors import InvalidName, ServiceError, passes

T = TypeVar("T")
P = ParamSpec("P")

Talk = Generator["Call", Any, T]


@dataclass(frozen=True, slots=True)
class Call:
    """One request. Its answer is JSON, or the `members` of a JSON object; None for no body; bytes if `is_binary`.

    `is_final`: a session does not repeat it, since after a lost answer a second attempt would fail, or do something else.
    """

    method: str
    path: str
    json: Any = None
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    is_binary: bool = False
    members: Sequence[str] = ()
    is_final: bool = False


class Speaker(Protocol):
    """A class that runs talks, the methods of its `_talks`."""

    _talks: Any

    def _held(self, talk: Talk[T]) -> T: ...


class AsyncSpeaker(Protocol):
    """`Speaker` for asyncio."""

    _talks: Any

    def _held(self, talk: Talk[T]) -> Awaitable[T]: ...


def hold(talk: Talk[T], send: Callable[[Call], Any]) -> T:
    """Run a talk, and return its result. Raises the ServiceError that the talk does not handle."""
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
        talk.close()  # an interrupted send must end what the talk has open, such as a progress bar


async def hold_async(talk: Talk[T], send: Callable[[Call], Awaitable[Any]]) -> T:
    """`hold` for asyncio."""
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


def retrying(for_s: float, call: Call) -> dict[str, Any]:
    """Retry policy of a request: the arguments of `tenacity.Retrying` and `AsyncRetrying`."""
    return again_for(0.0 if call.is_final else for_s)


def again_for(for_s: float) -> dict[str, Any]:
    """The policy that repeats a request for so many seconds while its errors may pass."""
    return {
        "retry": retry_if_exception(passes),
        "stop": stop_after_delay(for_s),
        "wait": wait_random_exponential(multiplier=0.1, max=2.0),
        "reraise": True,
    }


# -- methods ----------------------------------------------------------------------------------------------------------


def speaker(made: type[T]) -> type[T]:
    """Class decorator that sets module and qualified name of the methods that `sync_method` and `async_method` created."""
    for name, member in vars(made).items():
        if inspect.isfunction(member):
            member.__module__, member.__qualname__ = made.__module__, f"{made.__qualname__}.{name}"
    return made


def sync_method(talk: Callable[Concatenate[Any, P], Talk[T]]) -> Callable[Concatenate[Any, P], T]:
    """The method that runs this talk, with its parameters and docstring."""

    def method(self: Speaker, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._held(talk(self._talks, *args, **kwargs))

    return _like(method, talk)


def async_method(talk: Callable[Concatenate[Any, P], Talk[T]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """`sync_method` for asyncio."""

    async def method(self: AsyncSpeaker, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._held(talk(self._talks, *args, **kwargs))

    return _like(method, talk)


def _like(method: Any, talk: Callable[..., Any]) -> Any:
    """Give the method the talk's name, docstring and signature, with the talk's result as the return type."""
    signature = inspect.signature(talk)
    returns = str(signature.return_annotation).removeprefix("Talk[").removesuffix("]")
    return like(method, talk, signature.replace(return_annotation=returns))


def like(made: Any, talk: Callable[..., Any], signature: inspect.Signature) -> Any:
    """Give a function the talk's name and docstring, and this signature."""
    made.__signature__ = signature
    made.__name__ = talk.__name__
    made.__doc__ = talk.__doc__
    return made


# -- paths ------------------------------------------------------------------------------------------------------------


def path_of(session: str, *action: str) -> str:
    """The path of a session, or below it. Raises InvalidName for a session that is not given by its name."""
    if not isinstance(session, str):
        detail = f"the session's name must be a string, not {type(session).__name__}; it is the first argument"
        raise InvalidName.at("/session", detail)
    return "/".join(("/sessions", *(segment(part) for part in (session, *action))))


def segment(part: str) -> str:
    """The text as one path segment; `.` and `..` are escaped, so that no name leads to another path. Raises InvalidName."""
    if not isinstance(part, str):
        raise InvalidName.at("", f"a name or id must be a string, not {type(part).__name__}")
    return part.replace(".", "%2E") if part in (".", "..") else quote(part, safe="")
