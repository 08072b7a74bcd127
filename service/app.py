"""The composition root: settings, store, sessions, routes. No logic."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from pydantic.warnings import UnsupportedFieldAttributeWarning
from threadpoolctl import threadpool_limits

from okl.errors import StoreError
from okl_core import learner_kinds
from okl_core.linalg.arithmetic import arithmetic

from . import __version__
from .api import (
    challenger_routes,
    documents,
    moving_routes,
    problems,
    routes,
    streams,
    template_routes,
    watching_routes,
)
from .api.authentication import Authentication
from .api.conversation import Conversations
from .api.cors import Cors
from .api.dependencies import Worker
from .api.request_checks import RequestChecks
from .archive.states import States
from .challengers.challengers import Challengers
from .challengers.feeder import Feeder
from .challengers.roster import Roster
from .keys.audit import Audit
from .keys.keyring import Keyring, is_open_without_keys
from .logs import configure
from .pages import routes as dashboard
from .pages import signing
from .replica.cache import Replicas
from .replica.first_use import Make
from .replica.scheduling import Scheduler
from .replica.snapshots import Snapshots
from .replica.summaries import Summaries
from .rounds import Rounds
from .session.limits import SessionLimits
from .sessions import Sessions
from .settings import Settings, limits_of, session_limits_of
from .store.base import Store
from .store.opening import open_store
from .store.template_store import KeepsTemplates
from .telemetry.board import Board
from .telemetry.census import Census
from .telemetry.counts import Counts
from .telemetry.exposition import Exposition
from .telemetry.timed_store import TimedStore
from .templates.expiry import Expiry
from .templates.templates import Templates
from .watching.event_streams import EventStreams
from .watching.past import PastReader

if TYPE_CHECKING:
    from .watching.webhook import Webhook

log = logging.getLogger("okl")

BODY_ALIAS = "The 'alias' attribute with value 'body'"

GC_THRESHOLDS = (20_000, 20, 100)
"""Collect young objects, and rarely all of them: a full collection takes 27 ms, measured."""

SWITCH_INTERVAL_S = 0.0005
"""How long a thread's arithmetic may keep the interpreter from the event loop."""

LOADED_AFTER_S = 1.0
"""When to import the learners, and what `auto` needs for its first fit: a third of the start-up time, so a thread does it
after the first requests were answered. A request that needs them earlier imports them itself."""


ROUTERS = (
    streams.streams,
    streams.lines,
    streams.columns,
    streams.json_bodies,
    routes.json_bodies,
    routes.sessions,
    moving_routes.router,
    moving_routes.json_bodies,
    challenger_routes.router,
    challenger_routes.json_bodies,
    template_routes.router,
    template_routes.json_bodies,
    watching_routes.json_bodies,
    watching_routes.router,
    routes.operations,
    dashboard.pages,
    dashboard.twins,
    signing.signing,
)
"""All routers except `routes.hot`, whose routes are the app's own."""


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application. Without arguments (as uvicorn's factory), settings come from the environment."""
    settings = settings or Settings()
    # pydantic warns of the alias "body", which FastAPI gives each body. FastAPI mutes the warning while it creates a route,
    # but our models are built later.
    warnings.filterwarnings("ignore", BODY_ALIAS, UnsupportedFieldAttributeWarning)
    counts = Counts()
    keyring, audit = Keyring(is_open=is_open_without_keys(settings)), Audit()
    app = FastAPIOffline(
        redirect_slashes=False,
        title="okl",
        version=__version__,
        summary="Online kernel learning as a service.",
        lifespan=partial(_running, settings, counts, keyring, audit),
        telemetry={"metrics": False, "tracing": False, "logs": False},
        responses=routes.ANY,
        generate_unique_id_function=problems.operation_id,
        routes=routes.hot.routes,
    )
    app.state.keyring, app.state.audit = keyring, audit
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    app.add_middleware(Authentication, keyring=keyring, audit=audit, page=dashboard.refusal)
    origins = settings.allowed_origins
    if origins:
        app.add_middleware(Cors, origins=origins, is_for_preflights=True)
    app.add_middleware(RequestChecks, settings=settings, counts=counts)
    if origins:
        app.add_middleware(Cors, origins=origins, is_for_preflights=False)
    documents.install(app)
    return app


@asynccontextmanager
async def _running(
    settings: Settings, counts: Counts, keyring: Keyring, audit: Audit, app: FastAPI
) -> AsyncIterator[None]:
    """The app's lifespan: a worker on an open store."""
    configure(settings)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    store = open_store(settings.store, limits_of(settings))
    await store.open()
    keyring.keep(store)
    with suppress(StoreError):  # the next request reads the keys, and none is admitted before they were read
        await keyring.refresh()
    worker = make_worker(settings, store, counts)
    app.state.worker = worker
    asyncio.get_running_loop().call_later(LOADED_AFTER_S, _load_the_rest)
    extra = {"version": __version__, "store": type(store).__name__, "arithmetic": arithmetic()}
    log.info("serving", extra=extra)
    for warning in await store.warnings():
        log.warning("store", extra={"detail": warning})
    try:
        worker.start()
        # Several workers on one machine would otherwise each use all cores for products of small matrices.
        with threadpool_limits(1):
            # Loaded modules stay, so exclude them from collection while requests wait. A collection before that is not
            # worth it: of 54 MB it would free 0.6, and take a tenth of the start-up time.
            gc.freeze()
            gc.set_threshold(*GC_THRESHOLDS)
            yield
    finally:
        audit.flush()
        await worker.close()
        await store.close()
        log.info("stopped")


def _load_the_rest() -> None:
    def load() -> None:
        learner_kinds()
        import_module("scipy.optimize")
        gc.freeze()

    Thread(target=load, daemon=True).start()


def end_streams(app: FastAPI) -> None:
    """End the streams that would otherwise never end, because the worker is stopping."""
    worker: Worker | None = getattr(app.state, "worker", None)
    if worker is not None:
        worker.end_streams()


def make_worker(settings: Settings, store: Store, counts: Counts | None = None) -> Worker:
    """Create everything that a worker holds, on an open store."""
    counts = counts or Counts()
    kind = type(store).__name__
    kept = store.templates if isinstance(store, KeepsTemplates) else None
    store = TimedStore(store, counts)
    limits = session_limits_of(settings)
    roster = Roster(store, counts)
    rounds = _rounds(
        settings,
        store,
        counts,
        limits,
        roster,
        # Created below, since both use the rounds.
        alarmed=lambda name: None if webhook is None else webhook.note(name),
        make=lambda name: templates.make(name),
    )
    webhook = _webhook(settings, store, rounds, counts)
    sessions = Sessions(store, rounds, limits, most=settings.max_sessions)
    templates = Templates(store, kept, sessions)
    past = PastReader(store, rounds, waiting_s=settings.waiting_expires_s)
    census = Census(store, most=settings.metrics_sessions, waiting_s=settings.waiting_expires_s)
    states = States(
        store,
        rounds,
        sessions,
        limits,
        renamed=roster.find,
        before_trim=roster.feed_before_trim,
        patience_s=settings.patience_s,
        replaced=None if webhook is None else webhook.take_over,
    )
    feeder = Feeder(store, rounds, counts)
    challengers = Challengers(
        store, rounds, sessions, states, feeder, roster, most=settings.max_challengers, patience_s=settings.patience_s
    )
    worker = Worker(
        settings=settings,
        store=store,
        rounds=rounds,
        sessions=sessions,
        states=states,
        past=past,
        event_streams=EventStreams(past, most=settings.max_watchers),
        conversations=Conversations(rounds, most=settings.max_streams),
        templates=templates,
        expiry=Expiry(templates, sessions),
        counts=counts,
        exposition=Exposition(counts, census, Board(settings.metrics_dir), store=kind),
        webhook=webhook,
        roster=roster,
        feeder=feeder,
        challengers=challengers,
    )
    counts.gauges = worker.gauges
    return worker


def _rounds(
    settings: Settings,
    store: Store,
    counts: Counts,
    limits: SessionLimits,
    roster: Roster,
    *,
    alarmed: Callable[[str], None],
    make: Make,
) -> Rounds:
    """The work on sessions, with the parts that it alone uses."""
    scheduler = Scheduler()
    snapshots = Snapshots(
        store,
        scheduler,
        least_bytes=settings.snapshot_min_bytes,
        replay_s=settings.snapshot_replay_s,
        counts=counts,
        before_trim=roster.feed_before_trim,
    )
    return Rounds(
        store,
        Replicas(settings.resident_bytes),
        scheduler,
        snapshots,
        Summaries(store, counts=counts),
        limits,
        patience_s=settings.patience_s,
        queue=settings.max_queue,
        counts=counts,
        alarmed=alarmed,
        committed=roster.wake,
        make=make,
    )


def _webhook(settings: Settings, store: Store, rounds: Rounds, counts: Counts) -> Webhook | None:
    if not settings.webhook:
        return None
    from .watching.webhook import Webhook  # it needs httpx

    secret = settings.webhook_secret.get_secret_value()
    return Webhook(store, rounds, counts, settings.webhook, secret, timeout_s=settings.webhook_timeout_s)
