"""What a session answers: docs/http-api.md says what each member means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self, final

from okl.frames import NO_FRAME, Form

Label = str | float | bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What a later service says besides is left out."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        known = {field.name for field in fields(cls) if field.compare}
        return cls(**{name: value for name, value in document.items() if name in known})


@dataclass(frozen=True, slots=True)
class Prediction(Answer):
    """A forecast, made after `t` rounds. Its truth is reported under `id`; None if none is expected.

    A regressor gives a `value`, with `low` and `high` where there are intervals; a classifier a `label`, with a
    `probability` of the second label, the `probabilities` of all in their order, a `score`, or a `set` of labels.
    """

    session: str
    t: int
    id: str | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    label: Label | None = None
    score: float | None = None
    probability: float | None = None
    probabilities: Sequence[float] | None = None
    set: Sequence[Label] | None = None


COLUMNS: Final = {
    "values": ("value",),
    "lows": ("low",),
    "highs": ("high",),
    "labels": ("label",),
    "scores": ("score",),
    "probabilities": ("probability", "probabilities"),
    "sets": ("set",),
}
"""The columns of many forecasts, and what one of a Prediction's becomes a part of each."""


@final
class Predictions(Sequence[Prediction]):
    """Forecasts of many inputs, in their order."""

    def __init__(self, found: Sequence[Prediction], form: Form = NO_FRAME) -> None:
        self._found, self._form = list(found), form

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, place: Any) -> Any:
        return self._found[place]

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self._found)

    def __repr__(self) -> str:
        return f"Predictions({self._found!r})"

    def columns(self) -> dict[str, Sequence[Any]]:
        """What was forecast, by name, as `Played.columns` has it."""
        told: dict[str, Sequence[Any]] = {}
        for name, members in COLUMNS.items():
            rows = [[getattr(one, member) for member in members] for one in self._found]
            column = [next((part for part in row if part is not None), None) for row in rows]
            if any(part is not None for part in column):
                told[name] = column
        return told

    def to_frame(self) -> Any:
        """As `Played.to_frame`."""
        return self._form.frame(self.columns())


@dataclass(frozen=True, slots=True)
class Learned(Answer):
    """Round `t`, learned, and its loss. Of labels whether the forecast was a `mistake`, of numbers its `error`: forecast
    minus truth. `duplicate`: it was learned before, under this id."""

    session: str
    id: str | None
    t: int
    loss: float
    mistake: bool | None = None
    error: float | None = None
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Played(Answer):
    """Rounds that were predicted and learned in order, up to round `t`; one entry of each sequence a round."""

    session: str
    id: str | None
    t: int
    rounds: int
    loss: float
    mistakes: int | None = None
    values: Sequence[float | None] | None = None
    lows: Sequence[float | None] | None = None
    highs: Sequence[float | None] | None = None
    labels: Sequence[Label | None] | None = None
    scores: Sequence[float | None] | None = None
    probabilities: Sequence[Any] | None = None
    sets: Sequence[Sequence[Label] | None] | None = None
    duplicate: bool = False
    form: Form = field(default=NO_FRAME, repr=False, compare=False)

    def columns(self) -> dict[str, Sequence[Any]]:
        """What was forecast, by name: what a frame is made of."""
        return {name: found for name in COLUMNS if (found := getattr(self, name)) is not None}

    def to_frame(self) -> Any:
        """The columns as a frame of the kind that the inputs were, with its index where it is of pandas; else as arrays of
        numpy by name."""
        return self.form.frame(self.columns())

    @classmethod
    def joined(cls, parts: Sequence[Played], form: Form = NO_FRAME) -> Played:
        """The blocks of one stream as one. Raises ValueError if there are none.

        Of a block that was learned before its answer came nobody may know the forecasts: they are None.
        """
        if not parts:
            raise ValueError("there are no rounds")
        last, columns = parts[-1], [part.columns() for part in parts]
        nothing = [[None] * part.rounds for part in parts]
        return cls(
            last.session,
            None,
            last.t,
            sum(part.rounds for part in parts),
            sum(part.loss for part in parts),
            None if last.mistakes is None else sum(part.mistakes or 0 for part in parts),
            duplicate=all(part.duplicate for part in parts),
            form=form,
            **{
                name: [one for found, none in zip(columns, nothing, strict=True) for one in found.get(name, none)]
                for name in dict.fromkeys(name for found in columns for name in found)
            },
        )
