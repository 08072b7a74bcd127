"""Conversion between wire and domain: request models to domain values, and domain answers to JSON."""

from __future__ import annotations

from starlette.types import Scope

from okl.values import Json
from okl_core import LearnerSpec, parse_spec
from okl_core.records.extension import EARNED_AT
from okl_core.records.fields import Field, Fields
from okl_core.records.preparation import Preparation
from okl_core.records.record import weights_of
from okl_core.records.survey import Declared

from ..challengers.challengers import ChallengerStatus
from ..session.definition import AlarmRules, Definition, Ranges
from ..session.definition import Scale as DomainScale
from ..session.inputs import listed
from ..session.names import challenger_name
from ..session.precondition import IfTip
from ..session.requests import Batch, Predicted, Report, RoundsPlayed, Stepped, Updated
from ..sessions import Inspected, Listing
from ..store.base import Head, Tip
from ..store.moving import Checkpoint
from ..templates.template import Template
from .problems import document_for
from .round_schemas import RoundsBody, UpdateBody
from .schemas import DeclaredField, RangesScale, Scale, SessionCreate, SessionSettings
from .verdicts import alarm, comparison, verdict


def definition_of(body: SessionCreate) -> Definition:
    return definition_named(body.name, body)


def definition_named(name: str, body: SessionSettings) -> Definition:
    return Definition(
        name=name,
        learner=body.learner,
        dim=body.dim,
        schema=_schema_of(body.fields),
        hashed=body.hashed,
        is_strict=body.strict,
        labels=body.labels,
        y_range=body.y_range,
        scale=_scale_of(body.scale),
        warmup_rounds=body.warmup_rounds,
        interval=body.interval,
        snapshot_every=body.snapshot_every,
        expires_s=body.expires_s,
        reservoir=body.reservoir,
        alarm=AlarmRules(body.alarm.rate, body.alarm.error_above),
    )


def _schema_of(fields: dict[str, DeclaredField] | None) -> tuple[tuple[str, Declared], ...] | None:
    if fields is None:
        return None
    return tuple((name, Declared(one.type, one.categories)) for name, one in fields.items())


def _scale_of(scale: Scale) -> DomainScale:
    return Ranges(tuple(scale.low), tuple(scale.high)) if isinstance(scale, RangesScale) else scale.kind


def report_of(body: UpdateBody, id: str | None) -> Report:
    return Report(body.y, id, body.x, body.weight)


def batch_of(body: RoundsBody, id: str | None, if_tip: IfTip) -> Batch:
    return Batch(body.x, body.y, id, if_tip, weight=weights_of(body.weight))


def prediction(result: Predicted) -> Json:
    answer = result.answer
    given = {
        "session": result.session,
        "id": result.id,
        "t": result.t,
        "score": answer.score,
        "label": answer.label,
        "probability": answer.probability,
        "probabilities": answer.probabilities,
        "value": answer.value,
        "low": answer.low,
        "high": answer.high,
        "set": answer.labels,
    }
    return _without_none(given)


def update(result: Updated) -> Json:
    given = {
        "session": result.session,
        "id": result.id,
        "t": result.t,
        "loss": result.loss,
        "mistake": result.mistake,
        "error": result.error,
        "duplicate": result.is_duplicate,
    }
    return _without_none(given)


def step(result: Stepped, scope: Scope) -> Json:
    given = {"update": update(result.update)}
    if result.predict is not None:
        given["predict"] = prediction(result.predict)
    if result.refusal is not None:
        given["refused"] = document_for(result.refusal, scope)
    return given


def totals(result: RoundsPlayed) -> Json:
    """The answer to many rounds, without their forecasts."""
    given = {
        "session": result.session,
        "id": result.id,
        "t": result.t,
        "rounds": result.rounds,
        "loss": result.loss,
        "mistakes": result.mistakes,
        "duplicate": result.is_duplicate,
    }
    return _without_none(given)


def rounds(result: RoundsPlayed) -> Json:
    answer = totals(result)
    is_duplicate = answer.pop("duplicate")
    return answer | result.columns.as_lists() | {"duplicate": is_duplicate}


def _without_none(given: Json) -> Json:
    return {name: value for name, value in given.items() if value is not None}


def page(listing: Listing) -> Json:
    return {"sessions": [summary(one.head, one.summary.kind) for one in listing.sessions], "next": listing.cursor}


def summary(head: Head, kind: str) -> Json:
    """The members that every answer about a session begins with."""
    return {
        "name": head.name,
        "kind": kind,
        "t": head.tip.round,
        "waiting": head.waiting,
        "created_at": head.created_at,
        "updated_at": head.updated_at,
    }


def etag(tip: Tip) -> str:
    return f'"{tip.label}"'


def headers(found: Inspected) -> dict[str, str]:
    """The response headers of an answer about a session."""
    return {"ETag": etag(found.head.tip)}


def session(found: Inspected) -> Json:
    """Everything about one session."""
    frozen, spec, preparation = found.frozen, found.spec, found.preparation
    return summary(found.head, found.definition.kind) | {
        "t": found.t,
        "learner": _spec(spec),
        "settings": _settings(found.definition),
        "template": found.definition.template,
        "labels": list(found.labels) or None,
        "fields": None if preparation is None else _fields(preparation),
        "hashed": _hashed(found),
        "dim": found.dim,
        "warming_up": found.is_warming_up,
        "cautions": _cautions(found),
        "frozen": None if frozen is None else {"session": frozen.session, "t": frozen.t, "rule": frozen.rule},
        "lags": found.lags,
        "metrics": _metrics(found) | _coverage(found),
        "verdict": verdict(found.verdict, is_classifier=found.is_classifier),
        "alarms": [alarm(one, is_classifier=found.is_classifier) for one in found.alarms],
        "never_came": found.head.never_came,
        "describe": found.describe,
        "bytes": found.nbytes,
        "etag": etag(found.head.tip),
        "storage": _storage(found.head),
    }


def _hashed(found: Inspected) -> int | None:
    if found.preparation is None:
        return found.definition.hashed
    return found.preparation.fields.hashed if found.preparation.fields.is_wide else None


def _cautions(found: Inspected) -> list[str]:
    cautions = [] if found.spec is None else list(parse_spec(found.spec)[2].cautions)
    ignored = [] if found.preparation is None else found.preparation.extension.ignored(found.preparation.fields)
    if ignored:
        cautions.append(
            f"Ignored, since fewer than {EARNED_AT} rounds had them, or no column is left: {listed(ignored)}."
        )
    types = {isinstance(label, str) for label in found.labels}
    if found.definition.labels is None and len(types) == 2:
        cautions.append('Some labels are strings and others are not, so 3 and "3" are two labels.')
    return cautions


def _fields(preparation: Preparation) -> list[Json]:
    """The columns that each field of the inputs is mapped to."""
    columns, start, fields = [], 0, preparation.fields
    for one in fields.fields:
        columns.append(_field(one, start, fields, preparation))
        start += one.width
    spare = fields.width - fields.spare
    for (name, category), column in preparation.extension.columns().items():
        columns.append(
            {"name": name, "type": "number" if category is None else "category", "columns": [spare + column]}
        )
        if category is not None:
            columns[-1]["categories"] = [category]
    return columns


def _field(one: Field, start: int, fields: Fields, preparation: Preparation) -> Json:
    own = range(fields.own, fields.own + fields.hashed) if one.kind == "text" else range(start, start + one.width)
    document: Json = {"name": one.name, "type": one.kind, "columns": list(own)}
    if one.kind == "category":
        return document | {"categories": one.categories, "has_others": one.is_open}
    if one.kind == "number":
        document |= {"missing_as": one.centre, "tells_missing": one.has_indicator}
        if preparation.scaling is not None:
            low, span = preparation.scaling.low.item(start), preparation.scaling.span.item(start)
            document |= {"low": low, "high": low + span}
    return document


def _schema(schema: tuple[tuple[str, Declared], ...] | None) -> Json | None:
    if schema is None:
        return None
    plain = {name: {"type": one.kind, "categories": one.categories} for name, one in schema}
    return {name: _without_none(one) for name, one in plain.items()}


def _settings(definition: Definition) -> Json:
    scale = definition.scale
    ranges = {"kind": "ranges", "low": scale.low, "high": scale.high} if isinstance(scale, Ranges) else {"kind": scale}
    return {
        "dim": definition.dim,
        "schema": _schema(definition.schema),
        "hashed": definition.hashed,
        "strict": definition.is_strict,
        "labels": definition.labels,
        "y_range": definition.y_range,
        "scale": ranges,
        "warmup_rounds": definition.warmup_rounds,
        "interval": definition.interval,
        "snapshot_every": definition.snapshot_every,
        "expires_s": definition.expires_s,
        "reservoir": definition.reservoir,
        "alarm": definition.alarm._asdict(),
    }


def template(found: Template) -> Json:
    return {
        "name": found.name,
        "prefix": found.prefix,
        "session": settings_of(found.definition),
        "most": found.most,
        "idle_s": found.idle_s,
    }


def checkpoint(kept: Checkpoint) -> Json:
    return {"name": kept.name, "t": kept.tip.round, "at": kept.at, "bytes": kept.nbytes}


def challenger(champion: str, found: ChallengerStatus) -> Json:
    """The answer about a challenger."""
    return {
        "name": found.name,
        "session": challenger_name(champion, found.name),
        "kind": found.kind,
        "t": found.t,
        "behind": found.behind,
        "missed": found.missed,
        "skipped": found.skipped,
        "comparison": comparison(found.outcome, is_classifier=found.is_classifier),
        "created_at": found.created_at,
        "trouble": found.trouble,
    }


def settings_of(definition: Definition) -> Json:
    """The body of `POST /sessions`, without `name`, that would create a session with this definition."""
    return _without_none({"learner": _spec(definition.learner)} | _settings(definition))


def _spec(spec: LearnerSpec | None) -> Json | None:
    return None if spec is None else spec.model_dump(mode="json")


def _metrics(found: Inspected) -> Json:
    tally = found.tally
    metrics: Json = {
        "rounds": tally.rounds,
        "loss": tally.loss,
        "mean_loss": tally.mean_loss,
        "window": tally.window,
        "window_loss": tally.window_loss,
    }
    if found.is_classifier:
        rates = {"mistake_rate": tally.mean_error, "window_mistake_rate": tally.window_error}
        return metrics | {"mistakes": int(tally.error)} | rates
    return metrics | {"rmse": _root(tally.mean_error), "window_rmse": _root(tally.window_error)}


def _coverage(found: Inspected) -> Json:
    if found.definition.interval is None:
        return {}
    return {"coverage": found.coverage, "window_coverage": found.tally.window_coverage}


def _root(mean: float | None) -> float | None:
    return None if mean is None else mean**0.5


def _storage(head: Head) -> Json:
    return {
        "journal_rounds": head.journal_rounds,
        "journal_bytes": head.journal_bytes,
        "snapshot_round": None if head.snapshot_tip is None else head.snapshot_tip.round,
        "snapshot_bytes": head.snapshot_bytes,
        "snapshot_at": head.snapshot_at,
        "tail_bytes": head.tail_bytes,
        "waiting_bytes": head.waiting_bytes,
        "remembered": head.remembered,
        "remembered_bytes": head.remembered_bytes,
    }
