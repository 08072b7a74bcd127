"""The learner contract as functions: the guarantees of every learner, on which the service relies.

Each clause is a function of a `Subject` that returns None or raises `ContractViolation` with a description.
`check_learner` runs all clauses, for learners of this library and for others:

    import my_package.my_learner  # registers the kind "my-learner"
    from okl_core.contract.checks import check_learner
    check_learner("my-learner", {"step_size": 0.1})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from okl_core.contract.agreement import ContractViolation, run_checks
from okl_core.contract.description_checks import (
    check_announcements,
    check_config_schema,
    check_describe,
    check_identity,
)
from okl_core.contract.input_checks import check_bad_input_changes_nothing, check_extreme_inputs
from okl_core.contract.round_checks import (
    check_forecast_is_blind,
    check_lags,
    check_play_is_pure,
    check_predict_is_pure,
    check_probabilities,
    check_run_equals_updates,
    check_same_seed_same_run,
    check_update_is_play_and_learn,
)
from okl_core.contract.state_checks import (
    check_copies,
    check_inputs_are_copied,
    check_replay,
    check_state_arrays,
    check_state_bytes,
    check_state_is_everything,
)
from okl_core.contract.subject import ROUNDS, Check, Subject, make_subject

__all__ = ["CHECKS", "Check", "ContractViolation", "Subject", "check_learner", "make_subject"]

CHECKS: tuple[Check, ...] = (
    check_identity,
    check_config_schema,
    check_predict_is_pure,
    check_play_is_pure,
    check_forecast_is_blind,
    check_probabilities,
    check_update_is_play_and_learn,
    check_run_equals_updates,
    check_state_is_everything,
    check_copies,
    check_replay,
    check_same_seed_same_run,
    check_inputs_are_copied,
    check_lags,
    check_describe,
    check_announcements,
    check_bad_input_changes_nothing,
    check_state_arrays,
    check_state_bytes,
    check_extreme_inputs,
)
"""The contract, clause by clause."""


def check_learner(
    kind: str,
    config: Mapping[str, Any] | None = None,
    *,
    dim: int | None = None,
    seed: int = 0,
    rounds: int = ROUNDS,
    checks: Sequence[Check] = CHECKS,
) -> None:
    """Run every check, by default in a dimension that the learner accepts.

    Raises a ContractViolation that lists each broken clause.

    Examples
    --------
    >>> check_learner("mean")
    """
    subject = make_subject(kind, config, dim=dim, seed=seed, rounds=rounds)
    run_checks(checks, subject, f"the learner {kind!r}")
