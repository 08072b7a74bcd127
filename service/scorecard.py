"""How good the issued predictions of one session were: over all rounds, and over the last WINDOW."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from okl_core.errors import StateFormatError
from okl_core.types import F64

WINDOW = 500
"""Rounds that the windowed metrics look at."""


class Scorecard:
    """`error` of a round is 1 or 0 (mistake or not) for a classifier, the squared error for a regressor."""

    __slots__ = ("_errors", "_losses", "error", "loss", "rounds")

    def __init__(self) -> None:
        self.rounds = 0
        self.loss = 0.0
        self.error = 0.0
        self._losses = np.zeros(WINDOW)
        self._errors = np.zeros(WINDOW)

    def add(self, loss: float, error: float) -> None:
        slot = self.rounds % WINDOW
        self._losses[slot] = loss
        self._errors[slot] = error
        self.loss += loss
        self.error += error
        self.rounds += 1

    def add_many(self, losses: F64, errors: F64) -> None:
        """One entry a round, shape (n,)."""
        for loss, error in zip(losses.tolist(), errors.tolist(), strict=True):
            self.add(loss, error)

    def report(self, *, classifier: bool) -> dict[str, Any]:
        n = min(self.rounds, WINDOW)
        report: dict[str, Any] = {
            "rounds": self.rounds,
            "loss": self.loss,
            "mean_loss": self.loss / self.rounds if n else None,
            "window": n,
            "window_loss": float(self._losses[:n].mean()) if n else None,
        }
        mean = self.error / self.rounds if n else None
        window_mean = float(self._errors[:n].mean()) if n else None
        if classifier:
            return report | {"mistakes": int(self.error), "mistake_rate": mean, "window_mistake_rate": window_mean}
        return report | {
            "rmse": None if mean is None else math.sqrt(mean),
            "window_rmse": None if window_mean is None else math.sqrt(window_mean),
        }

    def pack(self) -> dict[str, F64]:
        n = min(self.rounds, WINDOW)
        return {
            "totals": np.array([float(self.rounds), self.loss, self.error]),
            "window": np.stack([self._losses[:n], self._errors[:n]]),
        }

    @classmethod
    def unpack(cls, arrays: Mapping[str, F64]) -> Scorecard:
        try:
            totals, window = arrays["totals"], arrays["window"]
            card = cls()
            card.rounds, card.loss, card.error = int(totals[0]), float(totals[1]), float(totals[2])
            card._losses[: window.shape[1]], card._errors[: window.shape[1]] = window
        except (KeyError, ValueError, IndexError) as error:
            raise StateFormatError(f"the metrics cannot be read: {error}") from error
        return card
