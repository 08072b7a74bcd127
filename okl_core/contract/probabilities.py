"""Probabilities of many rounds as arrays, even if the number of classes grows from round to round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from okl_core.types import F64, Forecast


def given_probabilities(forecasts: Sequence[Forecast], classes: int = 0) -> F64 | None:
    """The probabilities of n forecasts in the format of `BlockInfo`; None if a forecast has none.

    With several classes there are at least `classes` columns, and 0 for a class not known yet.
    """
    many = [forecast.probabilities for forecast in forecasts if forecast.probabilities is not None]
    if many and len(many) == len(forecasts):
        if classes <= len(many[0]) and len(set(map(len, many))) == 1:
            return np.array(many, dtype=np.float64)
        return joined_probabilities([np.array([probabilities], dtype=np.float64) for probabilities in many], classes)
    single = [forecast.probability for forecast in forecasts]
    return None if None in single else np.array(single, dtype=np.float64)


def joined_probabilities(parts: Sequence[F64], classes: int = 0) -> F64:
    """The probabilities of several blocks as one array, with a column for each class known at the end, at least `classes`."""
    if parts[0].ndim == 1:
        return np.concatenate(parts)
    classes = max(classes, *(part.shape[1] for part in parts))
    return np.concatenate([np.pad(part, ((0, 0), (0, classes - part.shape[1]))) for part in parts])
