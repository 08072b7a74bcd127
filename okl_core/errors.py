"""What can go wrong in the library, as a tree.

OklError
├── ConfigError              a spec or config that does not validate
│   └── UnknownKind       a kind that nobody registered
├── InputError               an input refused at the border; nothing has changed
│   ├── ShapeError
│   ├── NonFiniteError
│   ├── LabelError
│   └── WeightError          a weight that is none, or that the learner does not take
├── NumericalError           the arithmetic of a round failed; the state is as before the round
│   ├── NotPositiveDefiniteError
│   └── DivergedError
└── StateError
    ├── FrozenError          a frozen learner is asked to learn
    ├── StateFormatError     arrays that are not a state of this learner
    └── ReplayDivergence     a replayed round does not give what was recorded
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Literal

MAX_QUOTED = 64
"""Characters of a wrong word that are told, and compared with those there are."""


def quoted(word: str) -> str:
    return repr(word[:MAX_QUOTED])


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ "; did you mean `budget`?" if one of the known words is near, and all of them: the end of a sentence.

    Examples
    --------
    >>> did_you_mean("buget", ["budget", "clip"])
    '; did you mean `budget`? Known: budget, clip'
    >>> did_you_mean("x", ["budget", "clip"])
    '; known: budget, clip'
    """
    known = list(known)
    near = difflib.get_close_matches(word[:MAX_QUOTED].lower(), known, n=1)
    listed = ", ".join(known)
    return f"; did you mean `{near[0]}`? Known: {listed}" if near else f"; known: {listed}"


class UnstableWarning(UserWarning):
    """A learner is made with parameters under which rounding grows."""


class OklError(Exception):
    """Base of every error that `okl_core` raises on purpose."""


class ConfigError(OklError):
    """`errors` holds one (path, what is wrong) pair for each field at fault."""

    def __init__(self, message: str, errors: Sequence[tuple[tuple[str | int, ...], str]] = ()) -> None:
        super().__init__(message)
        self.errors = tuple(errors)


def unresolved(waiting: Sequence[tuple[tuple[str, ...], str]]) -> ConfigError:
    """The error for fields that still wait for inputs: their paths and words."""
    words = " and ".join(f'{path[-1]} "{word}"' for path, word in waiting)
    return ConfigError(
        f"{words} must be resolved on data first: okl_core.resolve(spec, X)",
        [(path, "not resolved") for path, _ in waiting],
    )


class UnknownKind(ConfigError):
    """`known` lists the registered kinds."""

    def __init__(self, kind: str, known: Sequence[str]) -> None:
        message = f"unknown learner kind {quoted(kind)}{did_you_mean(kind, known)}"
        super().__init__(message, [(("kind",), message)])
        self.kind = kind
        self.known = tuple(known)


class InputError(OklError):
    """`field` is "x", "y", "lags" or "weight"; `index` the offending position where there is one."""

    def __init__(self, message: str, field: str = "x", index: int | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.index = index


class ShapeError(InputError):
    """The wrong number of dimensions or features."""


class NonFiniteError(InputError):
    """NaN or infinity where a finite number belongs."""


class LabelError(InputError):
    """A truth outside what the loss of this learner takes."""


class WeightError(InputError):
    """A weight out of range, or for a learner that takes none."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message, "weight", index)


class NumericalError(OklError):
    """The arithmetic of a round failed: of its input, or of its truth alone ("y"). `index` is its row among several, where
    that is known."""

    def __init__(self, message: str, field: Literal["x", "y"] = "x", index: int | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.index = index

    @property
    def round(self) -> int | None:
        """The learner's round that the text names, as that of a learner within another one does too."""
        found = re.search(r"\bround (\d+)\b(?! or later)", str(self))
        return None if found is None else int(found[1])


class NotPositiveDefiniteError(NumericalError):
    """A matrix that theory says is positive definite is not, in floating point."""


class DivergedError(NumericalError):
    """A learner produced a value that is not finite."""


class StateError(OklError):
    """A state that cannot be restored or continued."""


class FrozenError(StateError):
    """A frozen learner is asked to learn."""


class StateFormatError(StateError):
    """Arrays that are not a state of this learner."""


class ReplayDivergence(StateError):
    """A replayed round does not give what was recorded."""
