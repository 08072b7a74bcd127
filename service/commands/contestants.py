"""Learners side by side on the rows of a file, each as a separate session in this process."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from okl.errors import ConfigurationError, InvalidInput, ServiceError
from okl.values import Json
from okl_core import LearnerSpec, parse_spec
from okl_core.errors import OklError
from okl_core.monitoring.duel import Outcome
from okl_core.records.fields import Fields
from okl_core.records.record import Raw
from okl_core.types import F64

from ..session.codec import WaitingEntry
from ..session.definition import Definition, Input, Scalar
from ..session.history.view import HistoryView, view_of
from ..session.history.words import verdict_text
from ..session.in_order import read_in_order
from ..session.late import play_round, waiting
from ..session.lesson_player import LessonPlayer
from ..session.limits import SessionLimits
from ..session.moment import NO_MOMENT
from ..session.played import Forecasts
from ..session.requests import Excerpt, Question
from ..session.scorecard import LEAST_LEFT, Tally
from ..session.session import Session
from .fitting import fitted
from .recording import RecordedRow, Recording

BLOCK: Final = 100
"""Rows that each learner plays in turn, as many as `okl replay` sends per request."""

MOST_SPEC_BYTES: Final = 1 << 20
MOST: Final = 64
"""The most learners in one comparison."""

TRIVIAL: Final = frozenset({"majority", "mean", "last-label", "frequencies"})
FEW_COLUMNS: Final = 6
"""The most columns for which `packing` is worth a try."""

_MEDIAN: Final = {"kernel": {"kind": "gaussian", "sigma": "median"}}


def usual(recording: Recording) -> list[Json]:
    """Default learners for the truths: the service's choice, trivial forecasters, and some of each kind."""
    if not recording.has_labels:
        few = [{"kind": "packing", "config": {"estimate": "linear"}}] if len(recording.columns) <= FEW_COLUMNS else []
        fogd = {"kind": "fogd", "config": _MEDIAN | {"loss": "squared"}}
        pool = {"kind": "pool", "config": {"truth": "numbers"}}
        real = [{"kind": "nystrom-aar", "config": _MEDIAN}, fogd, {"kind": "ons"}, pool, *few]
        return [{"kind": "auto"}, {"kind": "mean"}, {"kind": "last-label"}, *real]
    if recording.truths is not None and len(recording.truths) == 2:
        binary = [{"kind": kind, "config": _MEDIAN} for kind in ("nystrom-aioli", "pomdr")]
        trivial = [{"kind": "majority"}, {"kind": "last-label"}]
        return [{"kind": "auto"}, *trivial, *binary, {"kind": "ftrl-logistic"}, {"kind": "pool"}]
    member = {"kind": "nystrom-aioli", "config": _MEDIAN}
    wrapped = [{"kind": "one-vs-rest"}, {"kind": "one-vs-rest", "config": {"member": member}}]
    return [{"kind": "auto"}, {"kind": "frequencies"}, *wrapped]


def specs_of(options: Sequence[str]) -> list[Json]:
    """Parse options: each is a kind, a spec as JSON, or a file with a spec or a list of them. Raises ConfigurationError."""
    found: list[Json] = []
    for option in options:
        text = option.strip()
        if not text.startswith(("{", "[")) and Path(text).is_file():
            text = _read(Path(text))
        elif not text.startswith(("{", "[")):
            found.append({"kind": text})
            continue
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"--learner {option}: not JSON: {error}.") from error
        several = content if isinstance(content, list) else [content]
        found += [{"kind": one} if isinstance(one, str) else one for one in several]
    check_count(found)
    return found


def check_count(specs: Sequence[Any]) -> None:
    """Raises ConfigurationError."""
    if len(specs) > MOST:
        raise ConfigurationError(f"There are {len(specs)} learners; compare at most {MOST} at a time.")


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_SPEC_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from error
    if len(content) > MOST_SPEC_BYTES:
        raise ConfigurationError(f"{path} has more than {MOST_SPEC_BYTES:,} bytes; it is not a learner.")
    return content.decode("utf-8", "replace")


def names_of(specs: Sequence[Json]) -> list[str]:
    """The kinds, with the config if another spec has the same kind, and a number if it has the same config, too."""
    kinds = [str(spec.get("kind")) if isinstance(spec, Mapping) else "?" for spec in specs]
    names: list[str] = []
    for spec, kind in zip(specs, kinds, strict=True):
        config = spec.get("config") if isinstance(spec, Mapping) else None
        name = f"{kind} {json.dumps(config)}" if config and kinds.count(kind) > 1 else kind
        same = sum(other == name or other.startswith(f"{name} #") for other in names)
        names.append(f"{name} #{same + 1}" if same else name)
    return names


@final
class Contestant:
    """One learner and its results. `refusal` says why it has stopped; the others continue."""

    def __init__(
        self,
        name: str,
        spec: Json,
        define: Callable[[Json], Definition],
        limits: SessionLimits,
        *,
        has_labels: bool,
        delay: int = 0,
    ) -> None:
        """`has_labels` says whether the truths are labels."""
        self.name = name
        self.refusal: str | None = None
        self.seconds = 0.0
        """CPU time, in seconds."""
        self._limits = limits
        self._has_labels = has_labels
        self._delay = delay
        self._waiting: deque[tuple[WaitingEntry, Scalar]] = deque()
        self._held: dict[str, WaitingEntry] = {}
        self._log_loss, self._with_probability = 0.0, 0
        self._session: Session | None = None
        self.is_trivial = False
        try:
            self._session = Session(define(spec))
            self.is_trivial = spec["kind"] in TRIVIAL
        except (OklError, ServiceError, ValueError) as error:
            # The name begins with the kind already.
            self.refusal = _message(error).removeprefix(f"{spec.get('kind')}: " if isinstance(spec, Mapping) else "")

    def play(self, rows: Sequence[RecordedRow]) -> None:
        """Play the next rows: predict each, and learn it when its truth comes."""
        if self._session is None or self.refusal is not None:
            return
        began = time.process_time()
        try:
            if self._delay:
                for row in rows:
                    self._play_late(self._session, row)
            else:
                self._play_at_once(self._session, rows)
            self._limits.check_room(self.name, self._session.nbytes)
        except (OklError, ServiceError, ArithmeticError, np.linalg.LinAlgError) as error:
            self.refusal = f"after {self.rounds:,} rounds: {_message(error)}"
        self.seconds += time.process_time() - began

    def end(self) -> None:
        """Learn the truths that are still outstanding."""
        if self._session is None or self.refusal is not None:
            return
        try:
            while self._waiting:
                self._learn(self._session)
        except (OklError, ServiceError, ArithmeticError, np.linalg.LinAlgError) as error:
            self.refusal = f"after {self.rounds:,} rounds: {_message(error)}"

    def play_excerpt(self, excerpt: Excerpt) -> None:
        """Play the next rounds of a session's journal, each forecast when that session forecast it."""
        if self._session is None or self.refusal is not None:
            return
        session, began = self._session, time.process_time()

        def hold(question: Question) -> None:
            assert question.id is not None
            assert question.raw is not None
            self._held[question.id] = waiting(session, session.check_input(question.raw))

        def found(id: str) -> WaitingEntry | None:
            return self._held.pop(id, None)

        try:
            LessonPlayer(session, excerpt, NO_MOMENT, self._limits, lambda *_: None, found).play(hold)
        except (OklError, ServiceError, ArithmeticError, np.linalg.LinAlgError) as error:
            self.refusal = f"after {self.rounds:,} rounds: {_message(error)}"
        self.seconds += time.process_time() - began

    def _play_at_once(self, session: Session, rows: Sequence[RecordedRow]) -> None:
        """Play the rows as one block, which gives the same results as single rounds."""
        inputs, truths = [row.x for row in rows], [row.y for row in rows]
        raws, y, tasks = read_in_order(session, inputs, truths, partial(self._read, session))
        start = 0
        for part in session.run(raws, y, tasks).forecasts:
            self._judge(part, y[start : (start := start + len(part.values))])

    def _play_late(self, session: Session, row: RecordedRow) -> None:
        self._waiting.append((waiting(session, self._read(session, row.x, None)), row.y))
        if len(self._waiting) > self._delay:
            self._learn(session)

    def _learn(self, session: Session) -> None:
        waited, truth = self._waiting.popleft()
        y, task = session.read_truth(truth)
        self._judge(Forecasts.of(waited.forecast, None), np.array([y]))
        session.learn(play_round(session, waited, y, task))

    def _judge(self, forecasts: Forecasts, y: F64) -> None:
        """Add the log-loss of n rounds, if they have probabilities."""
        P = forecasts.probabilities
        if P is None or not self.is_classifier:
            return
        p = np.where(y > 0.0, P, 1.0 - P) if P.ndim == 1 else np.array(list(map(_given_to, P, y.astype(int))))
        self._log_loss -= float(np.log(np.maximum(p, LEAST_LEFT)).sum())
        self._with_probability += len(y)

    def _read(self, session: Session, x: Input, fields: Fields | None) -> Raw:
        raw = session.read_input(x, fields)
        self._limits.check_input(session, raw)
        return raw

    @property
    def rounds(self) -> int:
        return 0 if self._session is None else self._session.t

    @property
    def is_classifier(self) -> bool:
        task = None if self._session is None else self._session.task
        return self._has_labels if task is None else task.truths.is_classifier

    @property
    def tally(self) -> Tally:
        return Tally() if self._session is None else self._session.card.tally()

    @property
    def log_loss(self) -> float | None:
        """The mean log-loss in nats, if each forecast had a probability."""
        return self._log_loss / self.rounds if self.rounds and self._with_probability == self.rounds else None

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the duel with the session whose journal it plays."""
        pairing = None if self._session is None else self._session.pairing
        return None if pairing is None else pairing.outcome

    @property
    def stored(self) -> int:
        return 0 if self._session is None else int(self._session.describe()["dictionary"])

    @property
    def nbytes(self) -> int:
        return 0 if self._session is None else self._session.nbytes

    @property
    def view(self) -> HistoryView | None:
        """None before the first round."""
        if self._session is None or not self._session.history.rounds:
            return None
        return view_of(self._session.history)

    @property
    def verdict(self) -> str:
        view = self.view
        if self.is_trivial or view is None or view.verdict is None:
            return "a trivial forecaster" if self.is_trivial else ""
        return verdict_text(view.verdict, is_classifier=self.is_classifier)


def in_turn(
    recording: Recording, contestants: Sequence[Contestant], *, is_stopped: Callable[[], bool] = lambda: False
) -> Iterator[Contestant]:
    """Play all rows, one block per learner in turn, and yield the learner after each; a stop ends after a whole block."""
    # Rows appended since the file was looked through are not played, as their truths are not known.
    rows = islice(recording.rows(), recording.count)
    while not is_stopped() and (block := list(islice(rows, BLOCK))):
        for one in contestants:
            one.play(block)
            yield one
    for one in contestants:
        if not is_stopped():
            one.end()
            yield one


def _given_to(probabilities: F64, k: int) -> float:  # (K,)
    """The probability of class k; an unknown class gets what the known ones leave."""
    return float(probabilities[k]) if k < len(probabilities) else 1.0 - float(probabilities.sum())


def definition_for(recording: Recording, spec: Json) -> Definition:
    """The definition of a session that plays a file. Raises OklError, ServiceError."""
    found, settings = fitted(recording, spec)
    parse_spec(found)  # says what is wrong better than the validation below
    learner = LearnerSpec.model_validate(found)
    labels, y_range = settings.get("labels"), settings.get("y_range")
    return Definition(
        name=learner.kind,
        learner=learner,
        labels=None if labels is None else tuple(labels),
        y_range=None if y_range is None else (y_range[0], y_range[1]),
    )


def _message(error: Exception) -> str:
    if isinstance(error, InvalidInput) and error.extra.get("errors"):
        first = error.extra["errors"][0]
        return f"{first['pointer']} {first['detail']}"
    return " ".join(str(error).split()) or type(error).__name__
