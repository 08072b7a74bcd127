"""POMDR against the numbers published for it: [li2023] tables 2 and 3, set magic04."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.published import MAGIC_NARROW, MAGIC_WIDE, Published, measure
from service.demo_data import magic


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "mistakes_abs", "sum_delta_rel"),
    [(MAGIC_NARROW, 0.3, 0.03), (MAGIC_WIDE, 0.2, 0.03)],
    ids=["sigma 0.5", "sigma 4"],
)
def test_mistakes_and_alignment_on_magic(told: Published, mistakes_abs: float, sum_delta_rel: float) -> None:
    found = measure(*magic(), told.sigma)
    assert found.mistakes.mean() == pytest.approx(told.mistakes, abs=mistakes_abs)
    assert found.sum_delta.mean() == pytest.approx(told.sum_delta, rel=sum_delta_rel)
    # Phase 1 ends in every permutation, or in none.
    assert (np.isfinite(found.t_bar) == math.isfinite(told.t_bar)).all()
