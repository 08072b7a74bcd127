"""Helpers for the checks of the learner contract: comparing two runs and reporting violations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

import numpy as np

from okl_core.contract.subject import SeenRound
from okl_core.errors import OklError
from okl_core.types import Round, Stored

P = ParamSpec("P")
S = TypeVar("S")

TOLERANCE = 1e-9
"""Largest difference, relative to max(1, |value|), between two ways to compute the same number."""


class ContractViolation(AssertionError):
    """A learner does not keep a clause of the contract."""


def clause(check: Callable[P, None]) -> Callable[P, None]:
    """Decorate a check so that an unexpected error of the learner counts as a violation too."""

    @functools.wraps(check)
    def checked(*subject: P.args, **named: P.kwargs) -> None:
        try:
            check(*subject, **named)
        except OklError as error:
            raise ContractViolation(f"{type(error).__name__} was raised: {error}") from error

    return checked


def run_checks(checks: Iterable[Callable[[S], None]], subject: S, name: str) -> None:
    """Run every check on the subject. Raise a ContractViolation that lists those that it breaks, under its name."""
    violations: list[str] = []
    for check in checks:
        try:
            check(subject)
        except ContractViolation as violation:
            violations.append(f"{check.__name__}: {violation}")
        except Exception as error:
            error.add_note(f"while {check.__name__} ran on {name}")
            raise
    if violations:
        raise ContractViolation("\n  ".join([f"{name} breaks its contract:", *violations]))


class Raises:
    """Context manager whose body must raise the given error."""

    def __init__(self, error: type[Exception], what: str) -> None:
        self.error = error
        self.what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, traceback: object) -> bool:
        if isinstance(raised, self.error):
            return True
        if raised is not None and not isinstance(raised, Exception):
            return False
        got = "nothing was raised" if raised is None else f"{type(raised).__name__} was raised: {raised}"
        raise ContractViolation(f"{self.what} must raise {self.error.__name__}; {got}") from raised


def require(holds: bool, message: str) -> None:
    """Raise ContractViolation with the message unless the condition holds."""
    if not holds:
        raise ContractViolation(message)


def close(a: float | None, b: float | None, what: str) -> None:
    """Require that two numbers agree within the tolerance, or that both are missing."""
    if a is None or b is None:
        require(a is b, f"{what}: {a} and {b}")
    else:
        require(abs(a - b) <= TOLERANCE * max(1.0, abs(a)), f"{what}: {a!r} and {b!r}")


def close_arrays(expected: Any, actual: Stored, what: str) -> None:
    """Require that two arrays agree within the tolerance, relative to the largest entry."""
    expected = np.asarray(expected, dtype=np.float64)
    require(expected.shape == actual.shape, f"{what}: shapes {expected.shape} and {actual.shape}")
    # Entries of one array share its scale: a difference of 1e-12 from cancellation does not matter in a factor of size 1.
    distance = float(np.max(np.abs(expected - actual), initial=0.0))
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    require(distance <= TOLERANCE * scale, f"{what}: differ by {distance:.3g} (tolerance {TOLERANCE * scale:.3g})")


def close_states(expected: Mapping[str, Stored], actual: Mapping[str, Stored], what: str) -> None:
    """Require that two states agree within the tolerance."""
    require(list(expected) == list(actual), f"{what}: arrays {list(expected)} and {list(actual)}")
    for name, array in expected.items():
        close_arrays(array, actual[name], f"{what}: {name!r} of the state")


def same_arrays(expected: Mapping[str, Stored], actual: Mapping[str, Stored], what: str) -> None:
    """Require that two states agree byte for byte."""
    require(list(expected) == list(actual), f"{what}: arrays {list(expected)} and {list(actual)}")
    for name, array in expected.items():
        is_same = array.shape == actual[name].shape and array.tobytes() == actual[name].tobytes()
        require(is_same, f"{what}: {name!r} is not the same, byte for byte")


def same_rounds(first: Round | SeenRound, second: Round | SeenRound, what: str) -> None:
    """Require that two played rounds agree bit for bit in everything a caller sees."""
    for name in ("t", "forecast", "loss", "choices"):
        a, b = getattr(first, name), getattr(second, name)
        require(a == b, f"{what}: {name} {a!r} and {b!r}")
