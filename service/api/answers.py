"""Response models. Members that do not apply are omitted."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from okl_core import LearnerSpec
from okl_core.contract.frozen import FreezeRule
from okl_core.records.fields import FieldKind
from okl_core.types import Target


class WireAnswer(BaseModel):
    """Base of response models.

    A model's validator is built once, when a route uses it, and not as part of each model that contains it; that saves a
    twentieth of the start-up time.
    """

    model_config = ConfigDict(extra="forbid", defer_build=True)


class Readiness(WireAnswer):
    """`warnings` describe problems of the store's configuration, and what data they may lose."""

    status: Literal["alive", "ready"]
    warnings: list[str]


class ProblemType(WireAnswer):
    """What a problem type means, and what to do about it."""

    type: str
    title: str
    status: int
    detail: str


class ProblemDetail(WireAnswer):
    pointer: str = Field(
        description="JSON pointer into the body (RFC 6901), or `/` and the name of a parameter or header."
    )
    detail: str


class Problem(WireAnswer):
    """A problem document (RFC 9457). `errors` locates the errors in a request; some types carry further members."""

    model_config = ConfigDict(extra="ignore")

    type: str
    title: str
    status: int
    detail: str
    instance: str = Field(description="The request's id; quote it when you ask for help.")
    errors: list[ProblemDetail] | None = None


class Prediction(WireAnswer):
    """A binary classifier answers `score`, `label` and, if its loss defines one, `probability` (of the second label); a
    multi-class learner `label` and the `probabilities` of all labels, in the order of the session's `labels`; a regressor
    `value`. None of these is present before the first truth if that decides between labels and numbers. `id` is omitted if no
    prediction waits: with `"wait": false`, and in a frozen session."""

    session: str
    id: str | None = None
    t: int = Field(description="Rounds that the learner had observed.")
    score: float | None = None
    label: bool | str | float | None = None
    probability: float | None = None
    probabilities: list[float] | None = None
    value: float | None = None
    low: float | None = Field(default=None, description="Lower end of the interval; omitted if the interval is open.")
    high: float | None = Field(default=None, description="Upper end of the interval; omitted if the interval is open.")
    set: list[bool | str | float] | None = Field(
        default=None, description="The prediction set: labels that may be true."
    )


class Update(WireAnswer):
    """`loss` is the learner's loss on the prediction that was issued; classifiers have `mistake`, regressors `error`
    (prediction minus truth, in the units of the truth)."""

    session: str
    id: str | None = None
    t: int = Field(description="Rounds observed, including this one.")
    loss: float
    mistake: bool | None = None
    error: float | None = None
    duplicate: bool = Field(description="true: this update was applied before, and this is the first answer.")


class StepAnswer(WireAnswer):
    """The answers of `POST /update` and `POST /predict`. If the truth was applied but the prediction was refused, `predict`
    is omitted and `refused` says why."""

    update: Update
    predict: Prediction | None = None
    refused: Problem | None = None


class RoundsAnswer(WireAnswer):
    """One entry per round, in the order of the request. The answer to a repeated large request has only the totals."""

    session: str
    id: str | None = None
    t: int = Field(description="Rounds observed, including these.")
    rounds: int
    loss: float = Field(description="Sum of the losses of these rounds.")
    scores: list[float] | None = None
    labels: list[bool | str | float | None] | None = Field(
        default=None, description="Null before the first truth has shown that the session has labels."
    )
    probabilities: list[float] | list[list[float]] | None = Field(
        default=None,
        description="Of the second label; from a multi-class learner one list per round, with those of all labels.",
    )
    values: list[float | None] | None = None
    lows: list[float | None] | None = Field(
        default=None, description="Lower ends of the intervals; null where an interval is open."
    )
    highs: list[float | None] | None = None
    sets: list[list[bool | str | float]] | None = None
    mistakes: int | None = None
    duplicate: bool


class Metrics(WireAnswer):
    """Metrics of the predictions that were issued. `window_*` cover only the last `window` rounds."""

    rounds: int
    loss: float = Field(description="Cumulative loss.")
    mean_loss: float | None
    window: int
    window_loss: float | None = Field(description="Mean loss.")
    mistakes: int | None = None
    mistake_rate: float | None = None
    window_mistake_rate: float | None = None
    rmse: float | None = None
    window_rmse: float | None = None
    coverage: float | None = Field(
        default=None, description="Share of the truths that were inside their interval or set."
    )
    window_coverage: float | None = None


class VerdictAnswer(WireAnswer):
    """How the learner compares to the better of two trivial forecasters, by a test that is valid at all times."""

    text: str = Field(description="The verdict as a sentence.")
    state: Literal["better", "worse", "undecided"] = Field(description="At 95 % confidence.")
    rival: Literal["majority", "mean", "last-label"]
    gain: float | None = Field(
        description="1 - error / rival's error, as mistake rates or RMSE; null if the rival made no error."
    )
    low: float = Field(description="Lower end of the confidence band of the mean difference of the errors.")
    high: float
    rounds: int = Field(description="Rounds that were counted.")


class AlarmAnswer(WireAnswer):
    """The error was `before`, and is `after` in the rounds after `since`. For the kind `error`, `before` is the threshold."""

    t: int = Field(description="Round that raised it.")
    at: float
    kind: Literal["drift", "error"]
    text: str
    before: float
    after: float
    since: int


class SessionSummary(WireAnswer):
    name: str
    kind: str
    t: int
    waiting: int
    created_at: float
    updated_at: float | None = Field(description="Time of the last round, seconds since the epoch.")


class SessionPage(WireAnswer):
    sessions: list[SessionSummary]
    next: str | None = Field(description="Pass it as `cursor` to get the next page; null on the last page.")


class Storage(WireAnswer):
    """`snapshot_*` are null before the first snapshot. `journal_*` count the journal after the snapshot."""

    journal_rounds: int
    journal_bytes: int
    snapshot_round: int | None
    snapshot_bytes: int
    snapshot_at: float | None
    tail_bytes: int = Field(description="Journal before the snapshot, kept for workers that are slightly behind.")
    waiting_bytes: int
    remembered: int = Field(description="Ids whose answers are remembered.")
    remembered_bytes: int


class Frozen(WireAnswer):
    """`session` is the session that it was frozen from, `t` the rounds which that session had observed then."""

    session: str
    t: int
    rule: FreezeRule


class FieldAnswer(WireAnswer):
    """A field of the inputs, and the columns that it is mapped to.

    A missing number is replaced by `missing_as`; with `tells_missing`, its last column is 1 then. A number from `low` to
    `high` is scaled to [0, 1]; if they are equal, it has been constant so far. `has_others`: the last column of a category
    stands for all values without a column. All texts share their columns.
    """

    name: str
    type: FieldKind
    columns: list[int]
    categories: list[str] | None = None
    has_others: bool | None = None
    missing_as: float | None = None
    tells_missing: bool | None = None
    low: float | None = None
    high: float | None = None


class CheckpointAnswer(WireAnswer):
    """A state that was kept under a name."""

    name: str
    t: int = Field(description="The round after which the state was kept.")
    at: float = Field(description="When it was kept, in seconds since the epoch.")
    bytes: int = Field(description="Its size in the store.")


class CheckpointList(WireAnswer):
    """Sorted by name."""

    checkpoints: list[CheckpointAnswer]


class TemplateAnswer(WireAnswer):
    """Sessions whose names begin with `prefix` are created on first use."""

    name: str
    prefix: str
    session: dict[str, Any] = Field(description="Their settings: a request of `POST /sessions` without `name`.")
    most: int
    idle_s: float | None = Field(description="Seconds after which an idle session is deleted; null: never.")


class TemplateList(WireAnswer):
    """Sorted by name."""

    templates: list[TemplateAnswer]


class ComparisonAnswer(WireAnswer):
    """How the challenger compares to the champion, on rounds that both have played."""

    text: str
    state: Literal["better", "worse", "undecided"]
    rounds: int = Field(description="Rounds that were compared.")
    error_name: str
    challenger: float | None = Field(description="The challenger's mistake rate, or RMSE, in these rounds.")
    champion: float | None
    low: float = Field(description="Lower end, at 95 %, of the mean of the champion's error minus the challenger's.")
    high: float


class ChallengerAnswer(WireAnswer):
    """A session that follows another one."""

    name: str
    session: str = Field(description="The challenger's name as a session, in all routes that read sessions.")
    kind: str
    t: int = Field(description="Rounds that it has learned.")
    behind: int | None = Field(
        description="Rounds of the champion that it has not seen yet. Null, as are `missed` and `skipped`, if it "
        "cannot be loaded."
    )
    missed: int | None = Field(description="Rounds that were learned but not compared.")
    skipped: int | None = Field(description="Rounds of the champion that it has not learned, and will not.")
    comparison: ComparisonAnswer | None = Field(description="Null before the first round that was compared.")
    created_at: float
    trouble: str | None = Field(
        description="What keeps the answering worker from loading or feeding it, or why a round was refused."
    )


class ChallengerList(WireAnswer):
    """Sorted by name."""

    challengers: list[ChallengerAnswer]


class SessionDetail(SessionSummary):
    learner: LearnerSpec | None = Field(description="Null before the first truth has shown what there is to learn.")
    settings: dict[str, Any] = Field(description="The request that created the session, without name and learner.")
    template: str | None = Field(description="The template that created the session on first use.")
    labels: list[bool | str | float] | None = Field(
        description="A classifier's labels, in the order of `probabilities`; null for a regressor."
    )
    fields: list[FieldAnswer] | None = Field(
        description="How each field of the inputs is mapped, once that is known; empty if all names are hashed. A category "
        "that got a column after the warm-up has an entry of its own, with the name of its field."
    )
    hashed: int | None = Field(
        description="Number of columns that all names of the inputs are hashed into; null if each field has its own."
    )
    dim: int | None = Field(description="Number of the learner's inputs, once it is known.")
    warming_up: bool
    cautions: list[str] = Field(
        description="Warnings about the learner's parameters, labels of mixed types, and names in inputs that are ignored."
    )
    frozen: Frozen | None = Field(description="Where a frozen session comes from; null for a session that learns.")
    lags: list[float] | None = Field(
        description="The truths appended to the next input, as the learner sees them, newest first; null without `lags`."
    )
    metrics: Metrics
    verdict: VerdictAnswer | None = Field(description="Null before the first round.")
    alarms: list[AlarmAnswer] = Field(description="The latest 64.")
    never_came: int = Field(description="Predictions that expired or were cancelled.")
    describe: dict[str, float]
    bytes: int = Field(description="Memory of the learner.")
    etag: str = Field(description="The session's current version; also the ETag of this answer.")
    storage: Storage


class CatalogueEntry(WireAnswer):
    kind: str
    summary: str
    target: Target
    dims: int | None = Field(description="The only number of inputs that it supports, lags included; null: any.")
    references: list[str]
    defaults: dict[str, Any]
    config_schema: dict[str, Any]
