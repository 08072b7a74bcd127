"""Prediction intervals and sets that contain the truth as often as promised."""

from okl_core.conformal.conformal import (
    Conformal,
    ConformalState,
    class_score,
    excess_bound,
    interval,
    number_score,
    prediction_set,
)

__all__ = [
    "Conformal",
    "ConformalState",
    "class_score",
    "excess_bound",
    "interval",
    "number_score",
    "prediction_set",
]
