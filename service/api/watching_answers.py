"""Response models for a session's history, its last rounds, and its waiting predictions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .answers import AlarmAnswer, Prediction, Problem, VerdictAnswer, WireAnswer

Numbers = list[float | None]


class HistoryPoints(WireAnswer):
    """Columns of equal length, one entry per point, oldest first; the last point may be incomplete.

    A point sums up 8 rounds or, further back, 8 times a power of two. Errors are mistake rates or RMSE. `window_*` cover the
    last `window` rounds: the fewest latest points that have 500 rounds or more. `total_*` cover all rounds. `rival` is the
    better trivial forecaster so far.
    """

    t: list[int] = Field(description="Rounds at the end of the point.")
    at: Numbers = Field(description="Time of the point's last round, seconds since the epoch, by a worker's clock.")
    rounds: list[int]
    loss: Numbers
    error: Numbers
    window: list[int]
    window_loss: Numbers
    window_error: Numbers
    window_rival_loss: Numbers
    window_rival_error: Numbers
    total_loss: Numbers
    total_error: Numbers
    total_rival_loss: Numbers
    total_rival_error: Numbers
    coverage: Numbers = Field(description="Windowed share of the truths that were inside their interval or set.")
    low: Numbers = Field(description="The 0.1 quantile of the last 500 residuals (forecast minus truth).")
    median: Numbers
    high: Numbers = Field(description="Their 0.9 quantile.")
    dictionary: Numbers = Field(description="Points that the learner stores.")
    bytes: Numbers = Field(description="Memory of the learner, when a worker last measured it; null before that.")
    took_s: Numbers = Field(
        description="Approximate compute time of a round, in seconds; null before one was measured."
    )
    waiting: list[int] = Field(description="Predictions that waited for their truth.")
    never_came: list[int] = Field(description="Predictions so far that expired or were cancelled.")
    late: list[int] = Field(description="Rounds of the point whose prediction had waited for its truth.")
    delay_s: Numbers = Field(description="Mean seconds between these predictions and their truths.")
    regret: Numbers = Field(description="For a pool: its loss minus that of its best expert so far.")
    bound: Numbers = Field(description="Upper bound on the regret, if one is known.")


class WeightsAnswer(WireAnswer):
    """Weights of a composite learner's parts at the end of round `t`: a list of values for each name. The `leader` has the
    largest weight now."""

    t: list[int]
    leader: str
    names: list[str]
    values: list[list[float]]


class ReliabilityBin(WireAnswer):
    """Forecasts whose probability was in this range: their number, their mean, and how often the event happened."""

    start: float
    end: float
    rounds: float
    forecast: float
    happened: float


class DelayBin(WireAnswer):
    start_s: float
    end_s: float | None
    rounds: int


class HistoryAnswer(WireAnswer):
    """Null members are not known, or do not apply."""

    session: str
    t: int
    error_name: Literal["mistake rate", "RMSE"] | None
    rival: str | None
    verdict: VerdictAnswer | None
    points: HistoryPoints | None
    weights: WeightsAnswer | None
    reliability: list[ReliabilityBin] | None
    delays: list[DelayBin]
    alarms: list[AlarmAnswer]


class PastRoundAnswer(WireAnswer):
    """`label`, `value`, `probability`, `loss`, `mistake` and `error` are null where they are not recorded or do not apply."""

    t: int
    id: str = Field(description="Id of the request that reported the truth.")
    at: float
    x: list[float | None] | dict[str, float | bool | str | None]
    y: bool | str | float
    label: bool | str | float | None
    value: float | None
    probability: float | None = Field(description="Probability of the label predicted.")
    loss: float | None
    mistake: bool | None
    error: float | None
    waited_s: float | None = Field(
        description="Seconds from the prediction to its truth; null if no prediction waited."
    )


class PastRounds(WireAnswer):
    session: str
    rounds: list[PastRoundAnswer] = Field(description="Newest first.")


class WaitingPrediction(WireAnswer):
    id: str
    t: int = Field(description="Rounds that the learner had observed.")
    at: float
    expires_at: float
    x: list[float | None] | dict[str, float | bool | str | None]


class AgeBin(WireAnswer):
    start_s: float
    end_s: float | None
    predictions: int


class WaitingAnswer(WireAnswer):
    """A page of waiting predictions, sorted by expiry; `ages` counts all of them."""

    session: str
    predictions: list[WaitingPrediction]
    next: str | None = Field(description="Pass it as `cursor` to get the next page; null on the last page.")
    waiting: int
    never_came: int
    ages: list[AgeBin]


class RefusedPrediction(WireAnswer):
    """Why this prediction could not be kept; the others are not affected."""

    refused: Problem


class ManyPredictions(WireAnswer):
    """One entry per input, in the order of the request."""

    session: str
    predictions: list[Prediction | RefusedPrediction]
