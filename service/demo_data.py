"""The one data set that ships with the service."""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from okl_core.types import F64


def magic() -> tuple[F64, F64]:
    """MAGIC gamma telescope: X of shape (19020, 10) in [0, 1], y of shape (19020,) in {-1, +1}; see data/README.md."""
    with files(__package__ or "").joinpath("data/magic04.npz").open("rb") as file, np.load(file) as archive:
        return archive["X"].astype(np.float64), archive["y"].astype(np.float64)
