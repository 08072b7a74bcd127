"""What a client is told of a session's history, its last rounds, and the predictions that wait."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .answers import AlarmAnswer, Prediction, Problem, VerdictAnswer, WireAnswer

Numbers = list[float | None]


class HistoryPoints(WireAnswer):
    """Columns of equal length, one entry a point, oldest first; the last point may be in the making.

    A point sums up 8 rounds or, further back, a power of two times as many. Errors are mistake rates or RMSE. `window_*` look
    at the last `window` rounds: the first number of points from the end that has 500 or more. `total_*` look at all rounds.
    `rival` is the better trivial forecaster so far.
    """

    t: list[int] = Field(description="Rounds at the end of the point.")
    at: Numbers = Field(description="Time of its last round, seconds since the epoch, by the clock of a worker.")
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
    coverage: Numbers = Field(description="Windowed share of the truths that their interval or set held.")
    low: Numbers = Field(description="Of the last 500 residuals, forecast minus truth: the quantile 0.1.")
    median: Numbers
    high: Numbers = Field(description="The quantile 0.9.")
    dictionary: Numbers = Field(description="Points that the learner stores.")
    bytes: Numbers = Field(description="Memory of the learner, as a worker looked at it last.")
    took_s: Numbers = Field(description="About the seconds of arithmetic of a round.")
    waiting: list[int] = Field(description="Predictions that waited for their truth.")
    never_came: list[int] = Field(description="Predictions so far that expired or were cancelled.")
    late: list[int] = Field(description="Rounds of the point whose truth came after a prediction that waited.")
    delay_s: Numbers = Field(description="Mean seconds between these predictions and their truths.")
    regret: Numbers = Field(description="Of a pool: its loss minus that of its best expert so far.")
    bound: Numbers = Field(description="What that is at most, where it is known.")


class WeightsAnswer(WireAnswer):
    """Of the parts of a learner that is made of several, at the end of round `t`: a list of values for each name. The
    `leader` has the largest now."""

    t: list[int]
    leader: str
    names: list[str]
    values: list[list[float]]


class ReliabilityBin(WireAnswer):
    """Forecasts whose probability was in this range: how many, their mean, and how often they were right."""

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
    id: str = Field(description="Of the request that reported the truth.")
    at: float
    x: list[float | None] | dict[str, float | bool | str | None]
    y: bool | str | float
    label: bool | str | float | None
    value: float | None
    probability: float | None = Field(description="Of the label told, or of the second label.")
    loss: float | None
    mistake: bool | None
    error: float | None
    waited_s: float | None = Field(description="Seconds from the prediction to its truth; null if none waited.")


class PastRounds(WireAnswer):
    session: str
    rounds: list[PastRoundAnswer] = Field(description="The newest first.")


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
    """A page of the predictions that wait, the one that expires first first; `ages` counts all of them."""

    session: str
    predictions: list[WaitingPrediction]
    next: str | None = Field(description="Give it as `cursor` to get the next page; null at the end.")
    waiting: int
    never_came: int
    ages: list[AgeBin]


class RefusedPrediction(WireAnswer):
    """Why this prediction could not be kept; the others were."""

    refused: Problem


class ManyPredictions(WireAnswer):
    """One entry an input, in the order of the request."""

    session: str
    predictions: list[Prediction | RefusedPrediction]
