"""Every kind still gives the forecasts that were written down, by `update` and by `run`."""

from __future__ import annotations

import numpy as np
import pytest

from okl_core import create, learner_kinds
from tests.golden.forecasts import PATH, SPECS, spec_of, stream, values_of

TOLERANCE = 1e-9
FORECASTS = dict(np.load(PATH))
ONE_BY_ONE = 300
"""Rounds played by `update`, past every half-life, window and budget; `run` plays all of them."""


def test_every_kind_has_a_case() -> None:
    assert {kind for kind, _ in SPECS.values()} == set(learner_kinds())
    assert set(FORECASTS) == set(SPECS)


@pytest.mark.parametrize("case", SPECS)
def test_update_gives_the_forecasts_written_down(case: str) -> None:
    values = values_of(case, ONE_BY_ONE)
    np.testing.assert_allclose(values, FORECASTS[case][:ONE_BY_ONE], rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("case", SPECS)
def test_run_gives_the_forecasts_written_down(case: str) -> None:
    X, y = stream(case)
    values = create(spec_of(case), dim=X.shape[1]).run(X, y).values
    np.testing.assert_allclose(values, FORECASTS[case], rtol=TOLERANCE, atol=TOLERANCE)
