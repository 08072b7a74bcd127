"""What a client can do with sessions. The only caller of learners.

A round is played, committed to the store, and only then learned, so there is never anything to undo: a worker that finds
that others were first replays what it missed, and plays the round again.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from pydantic_core import to_json

from okl_core import errors as core
from okl_core.types import F64, Forecast
from service.answers import (
    detail,
    digest,
    duplicate,
    expired,
    id_conflict,
    rounds_answer,
    same_prediction,
    summary,
    update_answer,
)
from service.errors import (
    CannotFreeze,
    IdConflict,
    InvalidConfig,
    InvalidInput,
    LimitReached,
    NotFinite,
    NumericalFailure,
    Overloaded,
    PayloadTooLarge,
    PredictionExpired,
    PredictionNotFound,
    SessionFrozen,
    SessionFull,
    SessionNotFound,
    UnknownLearner,
    WrongDimension,
    WrongTruth,
)
from service.hosted import HostedLearner
from service.inputs import invalid
from service.journal import WaitingEntry, decode_waiting, encode_round, encode_waiting
from service.problems import place
from service.residents import Resident, Residents, log, parse_settings
from service.schemas import FreezeBody, PredictBody, RoundsBody, SessionCreate, UpdateBody
from service.scorecard import Issued
from service.settings import Settings
from service.store.base import (
    AlreadyApplied,
    AlreadyWaiting,
    Appended,
    Behind,
    Event,
    Gone,
    Head,
    Held,
    Store,
    TooManyWaiting,
    Waiting,
)

T = TypeVar("T")

_INPUT_ERRORS: dict[type[core.InputError], type[InvalidInput]] = {
    core.ShapeError: WrongDimension,
    core.NonFiniteError: NotFinite,
    core.LabelError: WrongTruth,
}


class SessionService:
    """All that routes need. Raises ServiceError only."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self._residents = Residents(store, settings)
        # Ids are unique among all workers: drawn once, then counted, since each draw is a call of the system.
        self._id_prefix = secrets.token_urlsafe(9)
        self._id_count = itertools.count()

    async def close(self) -> None:
        await self._residents.close()

    # -- sessions -----------------------------------------------------------------------------------------------------

    async def create(self, request: SessionCreate) -> dict[str, Any]:
        """Raises InvalidInput, InvalidConfig, UnknownLearner, SessionExists, LimitReached."""
        hosted = _host(request)
        if hosted.layout is not None:
            self._check_size(hosted, hosted.layout.dim, "/dim" if request.features is None else "/schema")
        await self._add(request)
        log.info("session created", extra={"session": request.name, "kind": request.learner.kind})
        return await self.inspect(request.name)

    async def freeze(self, name: str, request: FreezeBody) -> dict[str, Any]:
        """A new session from the store's present round of this one.

        Raises SessionNotFound, CannotFreeze, SessionExists, LimitReached.
        """
        resident = self._residents.get(name)
        async with resident.lock:
            hosted = await self._residents.current(resident)

            def pack() -> tuple[HostedLearner, bytes]:
                frozen = hosted.freeze(request.name, request.rule)
                return frozen, frozen.to_bytes()

            try:
                frozen, blob = await self._residents.by_size(hosted, pack)
            except core.StateError as error:
                raise CannotFreeze(f"Session {name!r} cannot be frozen: {error}.", session=name) from error
        await self._add(frozen.settings, frozen.t, blob)
        log.info("session frozen", extra={"session": name, "frozen": request.name, "t": frozen.t})
        return await self.inspect(request.name)

    async def _add(self, settings: SessionCreate, t: int = 0, snapshot: bytes | None = None) -> None:
        if await self.store.count() >= self.settings.max_sessions:
            raise LimitReached(f"There are {self.settings.max_sessions} sessions; delete one first.")
        meta = settings.model_dump_json(by_alias=True).encode()
        await self.store.create(Head(settings.name, secrets.token_hex(8), meta, time.time(), t), snapshot)

    async def inspect(self, name: str) -> dict[str, Any]:
        """Everything about one session. Raises SessionNotFound."""
        resident = self._residents.get(name)
        async with resident.lock:
            hosted = await self._residents.current(resident)
            head = await self.store.head(name)
            if isinstance(head, Gone):
                raise self._residents.gone(resident)
            return detail(head, hosted)

    async def list(self, cursor: str | None, limit: int) -> dict[str, Any]:
        page = await self.store.list(cursor, limit)
        return {"sessions": [summary(head, parse_settings(head)) for head in page.heads], "next": page.cursor}

    async def delete(self, name: str) -> None:
        """Raises SessionNotFound."""
        self._residents.drop(name)
        if not await self.store.delete(name):
            raise SessionNotFound(name)
        log.info("session deleted", extra={"session": name})

    # -- predict ------------------------------------------------------------------------------------------------------

    async def predict(self, name: str, request: PredictBody) -> dict[str, Any]:
        """Forecast at the session's present round; keep it until its truth comes, unless `wait` is false or no truth can
        come, since the session is frozen.
        """
        return await self._at(name, lambda resident: self._predict(resident, request))

    async def _predict(self, resident: Resident, request: PredictBody) -> dict[str, Any]:
        held = await self._hold(resident, request.id or self._new_id(), request.x) if request.wait else None
        if held is None:
            hosted = await self._residents.current(resident)
            x, _ = self._read_input(hosted, request.x)
            forecast = await self._arithmetic(resident, lambda: hosted.forecast(x))
            return {"session": resident.name, "id": None, "t": hosted.t} | hosted.truths.answer(forecast)
        waiting, entry = held
        resident.remember(waiting, entry)
        hosted = await self._residents.loaded(resident)
        return {"session": resident.name, "id": waiting.id, "t": entry.t} | hosted.truths.answer(entry.forecast)

    async def _hold(self, resident: Resident, prediction_id: str, sent: Any) -> tuple[Waiting, WaitingEntry] | None:
        """None: the session is frozen, and no prediction waits."""
        for now in self._tries(resident):
            hosted = await self._residents.loaded(resident)
            if hosted.frozen is not None:
                return None
            x, note = self._read_input(hosted, sent)
            forecast = await self._arithmetic(resident, lambda h=hosted, x=x: h.forecast(x))
            entry = WaitingEntry(hosted.t, forecast, x, note, hosted.lags)
            expires_at = now + (hosted.settings.expires_s or self.settings.waiting_expires_s)
            waiting = Waiting(prediction_id, encode_waiting(entry), expires_at)
            match await self.store.hold(
                resident.name, resident.uid, hosted.t, waiting, now=now, limit=self.settings.max_waiting
            ):
                case Held():
                    return waiting, entry
                case AlreadyWaiting(first):
                    return first, same_prediction(resident.name, first, entry, now)
                case AlreadyApplied():
                    raise id_conflict(resident.name, prediction_id, "was used for an earlier round")
                case Behind(reading):
                    await self._residents.catch_up(resident, reading)
                case TooManyWaiting():
                    raise LimitReached(
                        f"{self.settings.max_waiting} predictions of this session wait for their truth; "
                        "report some, or predict with `wait: false`."
                    )
                case Gone():
                    resident.hosted = None
        raise AssertionError("unreachable")

    # -- update -------------------------------------------------------------------------------------------------------

    async def update(self, name: str, request: UpdateBody) -> dict[str, Any]:
        """Play, commit and learn one round; a repeated update gets the first answer."""
        return await self._at(name, lambda resident: self._update(resident, request))

    async def _update(self, resident: Resident, request: UpdateBody) -> dict[str, Any]:
        for now in self._tries(resident):
            hosted = await self._residents.loaded(resident)
            _check_learns(hosted)
            y = hosted.truths.to_learner(request.y)
            found = await self._find_round(resident, hosted, request, now)
            if isinstance(found, Gone):
                resident.hosted = None
                continue
            if isinstance(found, AlreadyApplied):
                sent = None if request.x is None else self._read_input(hosted, request.x)[0]
                return duplicate(resident.name, found, sent, y)
            x, note, forecast, lags = found
            issued = None if forecast is None else Issued.of(forecast, y)
            self._check_room(resident, resident.bytes)
            pending = await self._arithmetic(
                resident,
                lambda h=hosted, x=x, y=y, n=note, i=issued, at=now, k=lags: h.play(
                    x, y, at=at, issued=i, note=n, lags=k
                ),
                is_long=hosted.ends_warmup(1),
            )
            answer = update_answer(hosted, pending)
            first = to_json(answer | {"x": digest(x), "y": y})
            # An event of its own id: the store takes two that are equal to the last byte for one, sent twice.
            event = Event(hosted.t + 1, encode_round(pending.entry), request.id or self._new_id(), first)
            match await self.store.append(resident.name, resident.uid, hosted.t, [event], now=now):
                case Appended():
                    await self._residents.learn(resident, hosted, lambda h=hosted, p=pending: h.learn(p))
                    if request.id is not None:
                        resident.forget(request.id)
                    await self._residents.committed(resident, hosted, 1, len(event.blob))
                    return {"session": resident.name, "id": request.id} | answer | {"duplicate": False}
                case AlreadyApplied() as applied:
                    return duplicate(resident.name, applied, x, y)
                case Behind(reading):
                    await self._residents.catch_up(resident, reading)
                case Gone():
                    resident.hosted = None
        raise AssertionError("unreachable")

    async def _find_round(
        self, resident: Resident, hosted: HostedLearner, request: UpdateBody, now: float
    ) -> tuple[F64, bytes, Forecast | None, F64 | None] | AlreadyApplied | Gone:
        """The input of an update, its note, and the forecast that was issued for it with which lags.

        Raises PredictionNotFound, PredictionExpired, IdConflict.
        """
        if request.id is None:
            return *self._read_input(hosted, request.x), None, None
        waiting, entry = resident.waiting.get(request.id, (None, None))
        # One that has expired here may have been settled in time by another worker.
        if waiting is None or waiting.expires_at <= now:
            found = await self.store.look_up(resident.name, resident.uid, request.id)
            if isinstance(found, AlreadyApplied | Gone):
                return found
            waiting, entry = found, None
        if waiting is None or waiting.expires_at <= now:
            if request.x is not None:
                return *self._read_input(hosted, request.x), None, None
            if waiting is not None:
                raise expired(resident.name, waiting)
            raise PredictionNotFound(
                f"No prediction {request.id!r} waits in session {resident.name!r}; give the id that POST /predict gave.",
                session=resident.name,
                id=request.id,
            )
        entry = entry or decode_waiting(waiting.blob, hosted.spec.lags, hosted.truths.classes)
        if request.x is not None and self._read_input(hosted, request.x)[0].tobytes() != entry.x.tobytes():
            raise id_conflict(resident.name, request.id, "waits for the truth of another input")
        return entry.x, entry.note, entry.forecast, entry.lags

    # -- rounds -------------------------------------------------------------------------------------------------------

    async def rounds(self, name: str, request: RoundsBody) -> dict[str, Any]:
        """Many rounds in order, one commit."""
        if len(request.x) > self.settings.max_batch:
            raise PayloadTooLarge(
                f"{len(request.x)} rounds; send at most {self.settings.max_batch} in one request.",
                limit=self.settings.max_batch,
            )
        resident = self._residents.get(name)
        async with resident.lock:
            for now in self._tries(resident):
                answer = await self._rounds(resident, request, now)
                if answer is not None:
                    return answer
        raise AssertionError("unreachable")

    async def _rounds(self, resident: Resident, request: RoundsBody, now: float) -> dict[str, Any] | None:
        """None: other workers were first; try again."""
        hosted = await self._residents.current(resident)
        _check_learns(hosted)
        X, y, note = self._read_rounds(hosted, request)
        if request.id is not None:
            found = await self.store.look_up(resident.name, resident.uid, request.id)
            if isinstance(found, AlreadyApplied):
                return duplicate(resident.name, found, X, y)
            if isinstance(found, Waiting):
                raise id_conflict(resident.name, request.id, "waits for the truth of a prediction")
        self._check_room(resident, resident.bytes)
        expected, before = hosted.t, hosted.card.loss
        # `run` changes the learner before the rounds are durable: until they are, this copy is nobody's.
        resident.hosted = None
        entries, values, probabilities = await self._arithmetic(
            resident,
            lambda: hosted.run(X, y, at=now, note=note),
            len(y),
            is_long=hosted.ends_warmup(len(y)),
        )
        self._check_room(resident, hosted.nbytes)
        answer = rounds_answer(hosted, values, probabilities, y, hosted.card.loss - before)
        events, end = [], expected
        for count, blob in entries:
            end += count
            events.append(Event(end, blob, count=count))
        first = to_json(answer | {"x": digest(X), "y": digest(y)})
        events[-1] = Event(end, events[-1].blob, request.id or self._new_id(), first, events[-1].count)
        match await self.store.append(resident.name, resident.uid, expected, events, now=now):
            case Appended():
                resident.hosted = hosted
                await self._residents.committed(resident, hosted, len(y), sum(len(event.blob) for event in events))
                return {"session": resident.name, "id": request.id} | answer | {"duplicate": False}
            case AlreadyApplied() as applied:
                return duplicate(resident.name, applied, X, y)
        return None

    def _read_rounds(self, hosted: HostedLearner, request: RoundsBody) -> tuple[F64, F64, bytes]:
        """Inputs of shape (n, d), truths of shape (n,), and the note of the inputs. Raises InvalidInput."""
        rows: list[F64] = []
        y = np.empty(len(request.y))
        note = b""
        for i, (sent, truth) in enumerate(zip(request.x, request.y, strict=True)):
            try:
                x, own_note = self._read_input(hosted, sent)
                if rows and (len(x) != len(rows[0]) or own_note != note):
                    raise invalid("/x", "has other inputs than the first row")
                y[i] = hosted.truths.to_learner(truth)
            except InvalidInput as error:
                part = "/y" if error.extra["errors"][0]["pointer"].startswith("/y") else "/x"
                raise error.under(f"{part}/{i}", part) from None
            rows.append(x)
            note = own_note
        return np.array(rows), y, note

    # -- work ---------------------------------------------------------------------------------------------------------

    async def _at(self, name: str, work: Callable[[Resident], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """Work on one session, one request after the other.

        A refusal counts only if the session is still the one that this worker knows, and was not deleted and made again.
        """
        resident = self._residents.get(name)
        async with resident.lock:
            try:
                return await work(resident)
            except (InvalidInput, IdConflict, PredictionExpired, SessionFull, SessionFrozen, NumericalFailure):
                head = await self.store.head(name)
                if isinstance(head, Head) and head.uid == resident.uid:
                    raise
            resident.hosted = None
            return await work(resident)

    def _new_id(self) -> str:
        return f"{self._id_prefix}-{next(self._id_count):x}"

    def _tries(self, resident: Resident) -> Iterator[float]:
        """The time of each try. Raises Overloaded when other workers have been faster for too long."""
        deadline = time.monotonic() + self.settings.commit_patience_s
        while time.monotonic() < deadline:
            yield time.time()
        raise Overloaded(f"Other workers were faster at session {resident.name!r} for too long; try again.")

    def _read_input(self, hosted: HostedLearner, sent: Any) -> tuple[F64, bytes]:
        x, note = hosted.read_input(sent)
        if hosted.layout is None:
            self._check_size(hosted, len(x), "/x")
        return x, note

    def _check_size(self, hosted: HostedLearner, dim: int, pointer: str) -> None:
        """Raises InvalidInput for inputs that are too many, or whose learner could not be held before its first round."""
        if dim > self.settings.max_dim:
            raise invalid(pointer, f"{dim} inputs; this service takes at most {self.settings.max_dim}")
        try:
            size = hosted.initial_bytes(dim)
        except core.ConfigError as error:
            raise invalid(pointer, str(error)) from error
        if size > self.settings.session_bytes:
            raise invalid(
                pointer,
                f"{dim} inputs; with them this learner takes {size} bytes from the start, the cap is "
                f"{self.settings.session_bytes}: give it fewer, or a smaller config",
            )

    def _check_room(self, resident: Resident, size: int) -> None:
        if size > self.settings.session_bytes:
            raise SessionFull(
                f"The learner of {resident.name!r} takes {size} bytes, the cap is {self.settings.session_bytes}; "
                "it still predicts. Create a session with a budgeted learner to go on learning.",
                session=resident.name,
                limit=self.settings.session_bytes,
            )

    async def _arithmetic(
        self, resident: Resident, work: Callable[[], T], rounds: int = 1, *, is_long: bool = False
    ) -> T:
        """`compute`, with the library's errors of bad input as the service's."""
        try:
            return await self._residents.compute(resident, work, rounds, is_long=is_long)
        except core.InputError as error:
            where = f"/{error.field}" + ("" if error.index is None else f"/{error.index}")
            raise invalid(where, str(error), _INPUT_ERRORS.get(type(error), InvalidInput)) from error
        except core.ConfigError as error:
            # What only the inputs bring to light.
            raise invalid("/x", str(error), WrongDimension) from error
        except core.NumericalError as error:
            raise NumericalFailure(f"The round was refused, nothing changed: {error}", session=resident.name) from error


def _check_learns(hosted: HostedLearner) -> None:
    """Raises SessionFrozen."""
    if hosted.frozen is not None:
        name, source = hosted.settings.name, hosted.frozen.session
        raise SessionFrozen(
            f"Session {name!r} is frozen; it was made from {source!r} and learns nothing.", session=name
        )


def _host(request: SessionCreate) -> HostedLearner:
    """Raises UnknownLearner, InvalidConfig, InvalidInput."""
    try:
        return HostedLearner(request)
    except core.UnknownLearner as error:
        raise UnknownLearner(f"{error}.", known=list(error.known)) from error
    except core.ConfigError as error:
        learner = request.learner.model_dump()
        errors = [{"pointer": "/learner" + place(learner, path), "detail": told} for path, told in error.errors]
        listed = "; ".join(f"{entry['pointer']}: {entry['detail']}" for entry in errors)
        raise InvalidConfig(listed, errors=errors) from error
