"""A session as an object: ids are made and kept, so that what was not answered can be sent again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from tenacity import AsyncRetrying, Retrying

from okl.answers import Played
from okl.rounds import BLOCK, Rounds
from okl.routes import Learner
from okl.stream import AsyncStream, Stream, cancelled
from okl.talks import Talk, asked, hold, hold_async, retrying, said, speaker

if TYPE_CHECKING:
    from okl.client import AsyncClient, Client

AGAIN_FOR_S: Final = 30.0

T = TypeVar("T")


@speaker
class Session:
    """A session of a service; made by `Client.session`.

    Each round has an id from the first request on. A request that fails in a way that passes (nobody answers, the store is
    away, the worker stops, the rate is used up) is sent again with the same id for `again_for_s` seconds, and learned once.

        with okl.Client() as client:
            clicks = client.session("clicks", labels=["no", "yes"])
            prediction = clicks.predict({"page": "home", "seconds": 4.2})
            clicks.update(prediction, "yes")
    """

    again_for_s: float = AGAIN_FOR_S

    def __init__(self, client: Client, name: str, learner: Learner | None, settings: Mapping[str, Any]) -> None:
        """Raises the ServiceError that refuses the definition of a new session."""
        self.client = client
        self.name = name
        self._talks = Rounds(name)
        self._held(self._talks.make(learner, settings))

    def __repr__(self) -> str:
        return f"Session({self.name!r}, {self.client.url!r})"

    predict = said(Rounds.predict)
    update = said(Rounds.update)
    learn = said(Rounds.learn)
    step = said(Rounds.step)
    play = said(Rounds.play)
    predict_many = said(Rounds.predict_many)
    describe = said(Rounds.describe)
    history = said(Rounds.history)

    def stream(self) -> Stream:
        """A socket, for many rounds under way at once; a context manager."""
        return self.client.stream(self.name)

    def delete(self) -> None:
        """The session with all it holds; there is no way back. It is asked for once."""
        self.client.delete(self.name)

    def _held(self, talk: Talk[T]) -> T:
        return hold(talk, lambda call: Retrying(**retrying(self.again_for_s))(self.client.send, call))


@speaker
class AsyncSession:
    """`Session` for asyncio: the same methods, answers and errors, each call awaited.

    Made by `await AsyncClient.session`. Many tasks may use one; the service decides the order of what they send together.

        async with okl.AsyncClient() as client:
            clicks = await client.session("clicks", labels=["no", "yes"])
            prediction = await clicks.predict({"page": "home", "seconds": 4.2})
            await clicks.update(prediction, "yes")
    """

    again_for_s: float = AGAIN_FOR_S

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.client = client
        self.name = name
        self._talks = Rounds(name)

    @classmethod
    async def made(cls, client: AsyncClient, name: str, learner: Learner | None, settings: Mapping[str, Any]) -> Self:
        """Raises the ServiceError that refuses the definition of a new session."""
        session = cls(client, name)
        await session._held(session._talks.make(learner, settings))
        return session

    def __repr__(self) -> str:
        return f"AsyncSession({self.name!r}, {self.client.url!r})"

    predict = asked(Rounds.predict)
    update = asked(Rounds.update)
    learn = asked(Rounds.learn)
    step = asked(Rounds.step)
    predict_many = asked(Rounds.predict_many)
    describe = asked(Rounds.describe)
    history = asked(Rounds.history)

    async def play(self, X: Any, y: Any = None, *, progress: bool = False) -> Played:
        """Many rounds in order, each forecast before it is learned.

        X is a list of inputs or a frame with a row each, y a list or a column of as many truths; or X is an async iterator of
        (input, truth), without y: see `parts`.
        """
        if isinstance(X, AsyncIterable):
            if y is not None:
                raise ValueError("an async iterator gives each input with its truth: leave out y")
            return Played.joined([part async for part in self.parts(X)])
        return await self._held(self._talks.play(X, y, progress=progress))

    async def parts(self, rounds: AsyncIterable[tuple[Any, Any]]) -> AsyncGenerator[Played]:
        """Rounds (input, truth) as they come. While a request is under way those that come meanwhile wait, and go together in
        the next one, at most 1,000; each request is answered by a part."""
        coming: asyncio.Queue[tuple[Any, Any] | None] = asyncio.Queue(BLOCK)

        async def gather() -> None:
            try:
                async for one in rounds:
                    await coming.put(one)
            finally:
                if not coming.full():
                    coming.put_nowait(None)

        gathering, before = asyncio.ensure_future(gather()), 0
        try:
            while not (gathering.done() and coming.empty()):
                block = [await coming.get()]
                while not coming.empty():
                    block.append(coming.get_nowait())
                if X := [one for one in block if one is not None]:
                    inputs, truths = zip(*X, strict=True)
                    for part in await self._held(self._talks.blocks(inputs, truths, before)):
                        yield part
                    before += len(X)
            await gathering
        finally:
            await cancelled(gathering)

    def stream(self) -> AsyncStream:
        """A socket, for many rounds under way at once; an async context manager."""
        return self.client.stream(self.name)

    async def delete(self) -> None:
        """The session with all it holds; there is no way back. It is asked for once."""
        await self.client.delete(self.name)

    async def _held(self, talk: Talk[T]) -> T:
        async def send(call: Any) -> Any:
            return await AsyncRetrying(**retrying(self.again_for_s))(self.client.send, call)

        return await hold_async(talk, send)
