"""A session as an object. It generates ids and keeps them across retries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from tenacity import AsyncRetrying, Retrying

from okl._html import table
from okl.answers import Played
from okl.events import Event
from okl.masking import shown_url
from okl.rounds import BLOCK, Rounds
from okl.routes import Learner
from okl.stream import AsyncStream, Stream, cancelled
from okl.talks import Talk, async_method, hold, hold_async, retrying, speaker, sync_method

if TYPE_CHECKING:
    from okl.client import AsyncClient, Client

AGAIN_FOR_S: Final = 30.0

T = TypeVar("T")


@speaker
class Session:
    """A session of a service, created by `Client.session`.

    Every round gets an id before it is first sent. A request that fails temporarily (no answer, store unavailable, worker
    stopping, rate limit reached) is retried with the same id for `again_for_s` seconds, so the round is learned once.
    Requests that change the session in other ways are sent once: a second attempt would fail if only the answer was lost.

        with okl.Client() as client:
            clicks = client.session("clicks", labels=["no", "yes"])
            prediction = clicks.predict({"page": "home", "seconds": 4.2})
            clicks.update(prediction, "yes")
    """

    again_for_s: float = AGAIN_FOR_S

    def __init__(self, client: Client, name: str, learner: Learner | None, settings: Mapping[str, Any]) -> None:
        """Raises the service's ServiceError if it rejects the definition of a new session."""
        self.client = client
        self.name = name
        self._talks = Rounds(name)
        self._held(self._talks.make(learner, settings))

    def __repr__(self) -> str:
        return f"Session({self.name!r}, {shown_url(self.client.url)!r})"

    def _repr_html_(self) -> str:
        return table("okl.Session", {"service": shown_url(self.client.url), "session": self.name})

    predict = sync_method(Rounds.predict)
    update = sync_method(Rounds.update)
    learn = sync_method(Rounds.learn)
    step = sync_method(Rounds.step)
    play = sync_method(Rounds.play)
    predict_many = sync_method(Rounds.predict_many)
    describe = sync_method(Rounds.describe)
    history = sync_method(Rounds.history)
    last_rounds = sync_method(Rounds.last_rounds)
    waiting = sync_method(Rounds.waiting)
    cancel = sync_method(Rounds.cancel)
    delete = sync_method(Rounds.delete)
    freeze = sync_method(Rounds.freeze)
    clone = sync_method(Rounds.clone)
    snapshot = sync_method(Rounds.snapshot)
    put_snapshot = sync_method(Rounds.put_snapshot)
    checkpoint = sync_method(Rounds.checkpoint)
    checkpoints = sync_method(Rounds.checkpoints)
    delete_checkpoint = sync_method(Rounds.delete_checkpoint)
    roll_back = sync_method(Rounds.roll_back)
    attach = sync_method(Rounds.attach)
    challengers = sync_method(Rounds.challengers)
    challenger = sync_method(Rounds.challenger)
    detach = sync_method(Rounds.detach)
    promote = sync_method(Rounds.promote)

    def stream(self) -> Stream:
        """A socket for many rounds in flight at once, as a context manager."""
        return self.client.stream(self.name)

    def events(self, last_id: str | None = None) -> Generator[Event]:
        """Yield (event id, entry of the session list) after each change of the session: see `Client.events`."""
        return self.client.events(self.name, last_id)

    def _held(self, talk: Talk[T]) -> T:
        return hold(talk, lambda call: Retrying(**retrying(self.again_for_s, call))(self.client.send, call))


@speaker
class AsyncSession:
    """`Session` for asyncio: the same methods, answers and errors, each call awaited.

    Created by `await AsyncClient.session`. Tasks may share one; the service decides the order of concurrent requests.

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
        """Create the object, and the session if need be. Raises the ServiceError that rejects its definition."""
        session = cls(client, name)
        await session._held(session._talks.make(learner, settings))
        return session

    def __repr__(self) -> str:
        return f"AsyncSession({self.name!r}, {shown_url(self.client.url)!r})"

    def _repr_html_(self) -> str:
        return table("okl.AsyncSession", {"service": shown_url(self.client.url), "session": self.name})

    predict = async_method(Rounds.predict)
    update = async_method(Rounds.update)
    learn = async_method(Rounds.learn)
    step = async_method(Rounds.step)
    predict_many = async_method(Rounds.predict_many)
    describe = async_method(Rounds.describe)
    history = async_method(Rounds.history)
    last_rounds = async_method(Rounds.last_rounds)
    waiting = async_method(Rounds.waiting)
    cancel = async_method(Rounds.cancel)
    delete = async_method(Rounds.delete)
    freeze = async_method(Rounds.freeze)
    clone = async_method(Rounds.clone)
    snapshot = async_method(Rounds.snapshot)
    put_snapshot = async_method(Rounds.put_snapshot)
    checkpoint = async_method(Rounds.checkpoint)
    checkpoints = async_method(Rounds.checkpoints)
    delete_checkpoint = async_method(Rounds.delete_checkpoint)
    roll_back = async_method(Rounds.roll_back)
    attach = async_method(Rounds.attach)
    challengers = async_method(Rounds.challengers)
    challenger = async_method(Rounds.challenger)
    detach = async_method(Rounds.detach)
    promote = async_method(Rounds.promote)

    async def play(self, X: Any, y: Any = None, *, weight: Any = None, progress: bool = False) -> Played:
        """Play many rounds in order, each forecast before it is learned.

        X is a list of inputs or a data frame, y a list or column of as many truths, `weight` of as many weights. X may also
        be an async iterator of rounds, without y and `weight`: see `parts`.
        """
        if isinstance(X, AsyncIterable):
            if y is not None or weight is not None:
                raise ValueError("an async iterator gives each input with its truth and weight: leave out y and weight")
            return Played.joined([part async for part in self.parts(X)])
        return await self._held(self._talks.play(X, y, weight=weight, progress=progress))

    async def parts(self, rounds: AsyncIterable[tuple[Any, Any] | tuple[Any, Any, float]]) -> AsyncGenerator[Played]:
        """Play rounds as they arrive, (input, truth) or (input, truth, weight), and yield the answer of each request.

        Rounds that arrive while a request is in flight are sent together in the next one, at most 1,000 at a time.
        """
        arrived: asyncio.Queue[tuple[Any, ...] | None] = asyncio.Queue(BLOCK)

        async def gather() -> None:
            try:
                async for one in rounds:
                    await arrived.put(one)
            finally:
                if not arrived.full():
                    arrived.put_nowait(None)

        gathering, before = asyncio.ensure_future(gather()), 0
        try:
            while not (gathering.done() and arrived.empty()):
                block = [await arrived.get()]
                while not arrived.empty():
                    block.append(arrived.get_nowait())
                if taken := [one if len(one) == 3 else (*one, 1.0) for one in block if one is not None]:
                    inputs, truths, weights = zip(*taken, strict=True)
                    own = weights if any(weight != 1.0 for weight in weights) else None
                    for part in await self._held(self._talks.blocks(inputs, truths, before, own)):
                        yield part
                    before += len(taken)
            await gathering
        finally:
            await cancelled(gathering)

    def stream(self) -> AsyncStream:
        """A socket for many rounds in flight at once, as an async context manager."""
        return self.client.stream(self.name)

    def events(self, last_id: str | None = None) -> AsyncGenerator[Event]:
        """Yield (event id, entry of the session list) after each change of the session: see `AsyncClient.events`."""
        return self.client.events(self.name, last_id)

    async def _held(self, talk: Talk[T]) -> T:
        async def send(call: Any) -> Any:
            return await AsyncRetrying(**retrying(self.again_for_s, call))(self.client.send, call)

        return await hold_async(talk, send)
