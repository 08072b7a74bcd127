"""Dependencies of the routes: typed, so that editors can follow them, and replaceable by `dependency_overrides`.

They are coroutines, since FastAPI calls a plain function in a thread, which takes longer than all that a small round does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends, Header, Path, Request
from starlette.requests import HTTPConnection

from okl.errors import InvalidInput

from ..archive.states import States
from ..challengers.challengers import Challengers
from ..challengers.feeder import Feeder
from ..challengers.roster import Roster
from ..rounds import Rounds
from ..session.precondition import ANYWHERE, IfTip
from ..sessions import Sessions
from ..settings import Settings
from ..store.base import Store
from ..telemetry.counts import Counts
from ..telemetry.exposition import Exposition
from ..templates.expiry import Expiry
from ..templates.templates import Templates
from ..watching.event_streams import EventStreams
from ..watching.past import PastReader
from .conversation import Conversations
from .values import KnownName

if TYPE_CHECKING:
    from ..watching.webhook import Webhook


@dataclass(frozen=True, slots=True)
class Worker:
    """Everything that a running worker holds, created when the app starts."""

    settings: Settings
    store: Store
    rounds: Rounds
    sessions: Sessions
    states: States
    past: PastReader
    event_streams: EventStreams
    conversations: Conversations
    templates: Templates
    expiry: Expiry
    counts: Counts
    exposition: Exposition
    webhook: Webhook | None
    roster: Roster
    feeder: Feeder
    challengers: Challengers

    def gauges(self) -> dict[str, float]:
        """What there is at present, by the names of the series."""
        return {
            "okl_waiting_limit": self.settings.max_waiting,
            "okl_queued_requests": self.rounds.queued,
            "okl_event_streams": self.event_streams.count,
            "okl_streams": self.conversations.count,
            "okl_copies": len(self.rounds.replicas),
            "okl_copies_bytes": self.rounds.replicas.nbytes,
            "okl_webhook_waiting": 0 if self.webhook is None else self.webhook.waiting,
            "okl_challengers": self.roster.count,
        }

    def start(self) -> None:
        """Start what runs beside the requests."""
        self.exposition.start()
        if self.webhook is not None:
            self.webhook.start()
        self.roster.start(self.feeder)
        self.expiry.start()

    def end_streams(self) -> None:
        """End the streams that would otherwise never end."""
        self.event_streams.close()
        self.conversations.close()

    async def close(self) -> None:
        """Let work in flight finish. The store stays open."""
        self.end_streams()
        await self.exposition.close()
        if self.webhook is not None:
            await self.webhook.close()
        await self.roster.close()
        await self.expiry.close()
        await self.rounds.close()


def worker_of(request: HTTPConnection) -> Worker:
    return cast(Worker, request.app.state.worker)


async def rounds_of(request: Request) -> Rounds:
    return worker_of(request).rounds


async def sessions_of(request: Request) -> Sessions:
    return worker_of(request).sessions


async def states_of(request: Request) -> States:
    return worker_of(request).states


async def challengers_of(request: Request) -> Challengers:
    return worker_of(request).challengers


async def templates_of(request: Request) -> Templates:
    return worker_of(request).templates


async def past_of(request: Request) -> PastReader:
    return worker_of(request).past


async def event_streams_of(request: Request) -> EventStreams:
    return worker_of(request).event_streams


async def conversations_of(request: Request) -> Conversations:
    return worker_of(request).conversations


async def settings_of(request: Request) -> Settings:
    return worker_of(request).settings


async def exposition_of(request: Request) -> Exposition:
    return worker_of(request).exposition


async def store_of(request: Request) -> Store:
    return worker_of(request).store


async def most_together_of(request: Request) -> int:
    # The settings themselves are a model: a `BodyRoute` would take them for the body.
    return worker_of(request).settings.max_together


RoundsDep = Annotated[Rounds, Depends(rounds_of)]
SessionsDep = Annotated[Sessions, Depends(sessions_of)]
StatesDep = Annotated[States, Depends(states_of)]
ChallengersDep = Annotated[Challengers, Depends(challengers_of)]
TemplatesDep = Annotated[Templates, Depends(templates_of)]
PastDep = Annotated[PastReader, Depends(past_of)]
EventStreamsDep = Annotated[EventStreams, Depends(event_streams_of)]
ConversationsDep = Annotated[Conversations, Depends(conversations_of)]
SettingsDep = Annotated[Settings, Depends(settings_of)]
ExpositionDep = Annotated[Exposition, Depends(exposition_of)]
MostTogether = Annotated[int, Depends(most_together_of)]
StoreDep = Annotated[Store, Depends(store_of)]
_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS = re.compile(rf"[ \t,]*{_TAG}(?:[ \t]*,[ \t,]*{_TAG})*[ \t,]*")
_OWN = re.compile(r'(?<!W/)"([0-9]{1,20}-[0-9a-f]{32})"')


async def tips_of(
    request: Request,
    given: Annotated[
        str | None,
        Header(
            alias="If-Match",
            description="The session's `ETag`: the request is refused if others have written to the session since. "
            "A list of these matches if one of them does, and `*` matches any session.",
        ),
    ] = None,
) -> IfTip:
    """The tips that `If-Match` names (RFC 9110, 13.1.1); a weak tag, or one of others, matches none. Raises InvalidInput."""
    if given is None:
        return None
    value = ", ".join(request.headers.getlist("If-Match")).strip()
    if value == ANYWHERE:
        return frozenset((ANYWHERE,))
    if not _TAGS.fullmatch(value):
        raise wrong_header("If-Match", "must be *, or a list of tags in quotes, such as the session's ETag")
    return frozenset(_OWN.findall(value))


def wrong_header(name: str, detail: str) -> InvalidInput:
    return InvalidInput(f"{name}: {detail}", errors=[{"pointer": f"/{name}", "detail": detail}])


IfMatch = Annotated[IfTip, Depends(tips_of)]
SessionPath = Annotated[KnownName, Path(description="Name of the session.")]
