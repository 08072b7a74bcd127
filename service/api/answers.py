"""What a client is told. Members that do not apply are left out."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from okl_core import LearnerSpec
from okl_core.contract.frozen import Rule
from okl_core.records.fields import FieldKind
from okl_core.types import Target


class WireAnswer(BaseModel):
    """What a client is told. Members that do not apply are left out.

    A model is built when a route names it, not as a part of each that names it: a twentieth of a start.
    """

    model_config = ConfigDict(extra="forbid", defer_build=True)


class Readiness(WireAnswer):
    """`warnings` say what is wrong with the store's configuration, and what may be lost."""

    status: Literal["alive", "ready"]
    warnings: list[str]


class ProblemType(WireAnswer):
    """What a type of problem means, and what to do."""

    type: str
    title: str
    status: int
    detail: str


class ProblemDetail(WireAnswer):
    pointer: str = Field(description="Where in the body (RFC 6901).")
    detail: str


class Problem(WireAnswer):
    """RFC 9457. `errors` says where a request is wrong; some types carry further members."""

    model_config = ConfigDict(extra="ignore")

    type: str
    title: str
    status: int
    detail: str
    instance: str = Field(description="The request's id; give it when you ask for help.")
    errors: list[ProblemDetail] | None = None


class Prediction(WireAnswer):
    """A classifier answers `score`, `label` and, where its loss defines one, `probability` (of the second label); a
    learner of classes `label` and the `probabilities` of all labels, in the order of the session's `labels`; a
    regressor `value`; nothing of these before the first truth, if it must tell whether there are labels or numbers. `id` is
    left out where nothing waits: with `"wait": false`, and in a frozen session."""

    session: str
    id: str | None = None
    t: int = Field(description="Rounds that the learner had observed.")
    score: float | None = None
    label: bool | str | float | None = None
    probability: float | None = None
    probabilities: list[float] | None = None
    value: float | None = None
    low: float | None = Field(default=None, description="Lower end of the interval; left out where it is open.")
    high: float | None = Field(default=None, description="Upper end of the interval; left out where it is open.")
    set: list[bool | str | float] | None = Field(default=None, description="The labels that may be the truth.")


class Update(WireAnswer):
    """`loss` is the learner's loss of the prediction that was issued; `mistake` is for classifiers, `error` (prediction
    minus truth, in the units of the truth) for regressors."""

    session: str
    id: str | None = None
    t: int = Field(description="Rounds observed, this one included.")
    loss: float
    mistake: bool | None = None
    error: float | None = None
    duplicate: bool = Field(description="true: this update was applied before, and this is the first answer.")


class StepAnswer(WireAnswer):
    """The answers of `POST /update` and `POST /predict`. `predict` is left out, and `refused` says why, if the truth was
    taken and the prediction cannot be given."""

    update: Update
    predict: Prediction | None = None
    refused: Problem | None = None


class RoundsAnswer(WireAnswer):
    """One entry a round, in the order of the request. The answer to a large request that is sent again has the totals
    only."""

    session: str
    id: str | None = None
    t: int = Field(description="Rounds observed, these included.")
    rounds: int
    loss: float = Field(description="Sum of the losses of these rounds.")
    scores: list[float] | None = None
    labels: list[bool | str | float | None] | None = Field(
        default=None, description="Null where the first truth had not told yet that there are labels."
    )
    probabilities: list[float] | list[list[float]] | None = Field(
        default=None, description="Of the second label; from a learner of classes of all labels, a list a round."
    )
    values: list[float | None] | None = None
    lows: list[float | None] | None = Field(default=None, description="Of the intervals; null where one is open.")
    highs: list[float | None] | None = None
    sets: list[list[bool | str | float]] | None = None
    mistakes: int | None = None
    duplicate: bool


class Metrics(WireAnswer):
    """Over the predictions that were issued. `window_*` look at the last `window` rounds only."""

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
    coverage: float | None = Field(default=None, description="Share of the truths that their interval or set held.")
    window_coverage: float | None = None


class VerdictAnswer(WireAnswer):
    """How the learner does beside the better of two trivial forecasters, by a test that holds at all times together."""

    text: str = Field(description="In a sentence.")
    state: Literal["better", "worse", "undecided"] = Field(description="With 95 %.")
    rival: Literal["majority", "mean", "last-label"]
    gain: float | None = Field(
        description="1 - error / error of the rival, of mistake rates or RMSE; null if the rival made no error."
    )
    low: float = Field(description="Lower end of the band of the mean difference of the errors.")
    high: float
    rounds: int = Field(description="That were counted.")


class AlarmAnswer(WireAnswer):
    """The error was `before`, and is `after` in the rounds after `since`; of the kind `error`, `before` is the threshold."""

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
    next: str | None = Field(description="Give it as `cursor` to get the next page; null at the end.")


class Storage(WireAnswer):
    """`snapshot_*` are null before the first snapshot. `journal_*` count what lies after it."""

    journal_rounds: int
    journal_bytes: int
    snapshot_round: int | None
    snapshot_bytes: int
    snapshot_at: float | None
    tail_bytes: int = Field(description="Journal kept behind the snapshot for workers that are a little behind.")
    waiting_bytes: int
    remembered: int = Field(description="Ids whose answers are remembered.")
    remembered_bytes: int


class Frozen(WireAnswer):
    """`session` is the one that it was made from, `t` the rounds that this one had observed then."""

    session: str
    t: int
    rule: Rule


class FieldAnswer(WireAnswer):
    """A field of the inputs, and the columns that it became.

    A missing number is taken as `missing_as`; where it `tells_missing`, its last column is 1 then. A number from `low` to
    `high` is scaled to [0, 1]; equal, they say that it was constant so far. `has_others`: the last column of a category
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
    """A state that is kept beside the session."""

    name: str
    t: int = Field(description="The round after which it was.")
    at: float = Field(description="When it was kept, in seconds since 1970.")
    bytes: int = Field(description="Its size in the store.")


class CheckpointList(WireAnswer):
    """In the order of their names."""

    checkpoints: list[CheckpointAnswer]


class TemplateAnswer(WireAnswer):
    """Sessions whose names begin with `prefix` are made on first use."""

    name: str
    prefix: str
    session: dict[str, Any] = Field(description="What they are made of: a request of `POST /sessions` without `name`.")
    most: int
    idle_s: float | None = Field(description="An idle one is deleted after so long; null: never.")


class TemplateList(WireAnswer):
    """In the order of their names."""

    templates: list[TemplateAnswer]


class ComparisonAnswer(WireAnswer):
    """The challenger beside the champion, on rounds of both."""

    text: str
    state: Literal["better", "worse", "undecided"]
    rounds: int = Field(description="Rounds that were compared.")
    error_name: str
    challenger: float | None = Field(description="Its mistake rate, or RMSE, in these rounds.")
    champion: float | None
    low: float = Field(description="Lower end of the champion's error minus the challenger's, in the mean, with 95 %.")
    high: float


class ChallengerAnswer(WireAnswer):
    """A session that follows another one."""

    name: str
    session: str = Field(description="Under which all that tells of sessions tells of it.")
    kind: str
    t: int = Field(description="Rounds that it has learned.")
    behind: int = Field(description="Rounds of the champion that it has not seen yet.")
    missed: int = Field(description="Rounds that were learned and not compared.")
    skipped: int = Field(description="Rounds of the champion that it has not learned, and will not.")
    comparison: ComparisonAnswer | None = Field(description="Null before the first round that was compared.")
    created_at: float
    trouble: str | None = Field(
        description="What kept the worker that answers from following, or why a round was refused."
    )


class ChallengerList(WireAnswer):
    """In the order of their names."""

    challengers: list[ChallengerAnswer]


class SessionDetail(SessionSummary):
    learner: LearnerSpec | None = Field(description="Null before the first truth has told what there is to learn.")
    settings: dict[str, Any] = Field(description="The request that created the session, without name and learner.")
    template: str | None = Field(description="The template that it was made from on first use.")
    labels: list[bool | str | float] | None = Field(
        description="A classifier's labels, in the order of `probabilities`; null for a regressor."
    )
    fields: list[FieldAnswer] | None = Field(description="What became of each field of the inputs, once it is known.")
    dim: int | None = Field(description="Columns that the learner is given, once they are known.")
    warming_up: bool
    cautions: list[str] = Field(description="What to beware of with the learner's parameters.")
    frozen: Frozen | None = Field(description="What it was made from, if it learns nothing; null if it learns.")
    lags: list[float] | None = Field(
        description="The truths that go with the next input, in the learner's terms, newest first; null without `lags`."
    )
    metrics: Metrics
    verdict: VerdictAnswer | None = Field(description="Null before the first round.")
    alarms: list[AlarmAnswer] = Field(description="The latest 64.")
    never_came: int = Field(description="Predictions that expired or were cancelled.")
    describe: dict[str, float]
    bytes: int = Field(description="Memory of the learner.")
    etag: str = Field(description="Where the session stands; the ETag of this answer too.")
    storage: Storage


class CatalogueEntry(WireAnswer):
    kind: str
    summary: str
    target: Target
    dims: int | None = Field(description="The only number of inputs that it takes, lags among them; null: any.")
    references: list[str]
    defaults: dict[str, Any]
    config_schema: dict[str, Any]
