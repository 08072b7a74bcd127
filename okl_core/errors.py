"""The exceptions of the library, as a tree.

OklError
├── ConfigError              a spec or config that does not validate
│   └── UnknownKind          a kind that is not registered
├── InputError               an input that fails validation; nothing has changed
│   ├── ShapeError
│   ├── NonFiniteError
│   ├── LabelError
│   └── WeightError          a weight out of range, or for a learner that takes none
├── NumericalError           the arithmetic of a round failed; the state is as before the round
│   ├── NotPositiveDefiniteError
│   └── DivergedError
└── StateError
    ├── FrozenError          a frozen learner is asked to learn
    ├── StateFormatError     arrays that are not a state of this learner
    └── ReplayDivergence     a replayed round differs from its record
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Literal

MAX_QUOTED = 64
"""Characters of an unknown word that are quoted, and compared with the known words."""


def quoted(word: str) -> str:
    return repr(word[:MAX_QUOTED])


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of an error message: the closest known word, if one is near, and the list of all known words.

    Examples
    --------
    >>> did_you_mean("buget", ["budget", "clip"])
    '; did you mean `budget`? Known: budget, clip'
    >>> did_you_mean("x", ["budget", "clip"])
    '; known: budget, clip'
    """
    known = list(known)
    near = difflib.get_close_matches(word[:MAX_QUOTED].lower(), known, n=1)
    listed = ", ".join(known) or "none"
    return f"; did you mean `{near[0]}`? Known: {listed}" if near else f"; known: {listed}"


class UnstableWarning(UserWarning):
    """A learner is created with parameters under which rounding errors grow."""


class OklError(Exception):
    """Base of every error that `okl_core` raises on purpose."""


class ConfigError(OklError):
    """An invalid spec or config; `errors` holds one (path, message) pair for each invalid field."""

    def __init__(self, message: str, errors: Sequence[tuple[tuple[str | int, ...], str]] = ()) -> None:
        super().__init__(message)
        self.errors = tuple(errors)


def unresolved(waiting: Sequence[tuple[tuple[str, ...], str]]) -> ConfigError:
    """The error for fields that still wait for inputs, given as (path, word) pairs."""
    words = " and ".join(f'{path[-1]} "{word}"' for path, word in waiting)
    return ConfigError(
        f"{words} must be resolved on data first: okl_core.resolve(spec, X)",
        [(path, "not resolved") for path, _ in waiting],
    )


class UnknownKind(ConfigError):
    """A kind that is not registered; `known` lists those that are."""

    def __init__(self, kind: str, known: Sequence[str]) -> None:
        message = f"unknown learner kind {quoted(kind)}{did_you_mean(kind, known)}"
        super().__init__(message, [(("kind",), message)])
        self.kind = kind
        self.known = tuple(known)


class InputError(OklError):
    """An invalid input: `field` is "x", "y", "lags", "weight" or "id", `index` the offending position, if any."""

    def __init__(self, message: str, field: str = "x", index: int | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.index = index


class ShapeError(InputError):
    """A wrong number of dimensions or features."""


class NonFiniteError(InputError):
    """NaN or infinity where a finite number belongs."""


class LabelError(InputError):
    """A truth that the learner's loss does not accept."""


class WeightError(InputError):
    """A weight out of range, or for a learner that takes none."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message, "weight", index)


class NumericalError(OklError):
    """The arithmetic of a round failed.

    `field` is "x" if the input caused it, "y" if the truth alone did. `index` is the row within a block, if known.
    """

    def __init__(self, message: str, field: Literal["x", "y"] = "x", index: int | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.index = index

    @property
    def round(self) -> int | None:
        """The round number in the message, if it names one; messages of nested learners count too."""
        match = re.search(r"\bround (\d+)\b(?! or later)", str(self))
        return None if match is None else int(match[1])


class NotPositiveDefiniteError(NumericalError):
    """A matrix that is positive definite in theory is not, because of rounding."""


class DivergedError(NumericalError):
    """A learner produced a value that is not finite."""


class StateError(OklError):
    """A state that cannot be restored or continued."""


class FrozenError(StateError):
    """A frozen learner is asked to learn."""


class StateFormatError(StateError):
    """Arrays that are not a state of this learner."""


class ReplayDivergence(StateError):
    """A replayed round differs from its record."""
