"""How the errors of a session or a learner are called in answers, pages and tables."""

from __future__ import annotations

from typing import Final

MISTAKE_RATE: Final = "mistake rate"
RMSE: Final = "RMSE"


def error_name(*, is_classifier: bool) -> str:
    """The error of labels is a mistake rate, that of numbers a root mean squared error."""
    return MISTAKE_RATE if is_classifier else RMSE
