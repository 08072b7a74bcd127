"""Answers of a session as dataclasses; docs/http-api.md describes each member."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self, final

from okl._html import table
from okl.errors import WrongType
from okl.frames import NO_FRAME, Form
from okl.problems import no_service

Label = bool | int | float | str


def label_key(label: Label) -> tuple[bool, Label]:
    """What distinguishes a label from others: Python has True equal to 1, but they are two labels."""
    return isinstance(label, bool), label


@dataclass(frozen=True, slots=True)
class Answer:
    """Base of the answers. Members that this version does not know are ignored, so that newer services stay readable."""

    @classmethod
    def of(cls, document: Any) -> Self:
        """The answer of this JSON object. Raises ServiceError if members are missing."""
        known = {field.name for field in fields(cls) if field.compare}
        try:
            return cls(**{name: value for name, value in document.items() if name in known})
        except (TypeError, AttributeError) as error:
            raise no_service(document) from error


@dataclass(frozen=True, slots=True)
class Prediction(Answer):
    """A forecast made after `t` rounds. Report its truth under `id`, which is None if no truth is expected.

    A regressor sets `value`, and `low` and `high` if the session has intervals. A classifier sets `label`, and, as far as the
    learner has them, `score`, `probability` (of the second label), `probabilities` (of all, in order) and `set`.
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


def id_of(prediction: Prediction | str) -> str:
    """The id of a prediction that is given as an object or by its id.

    Raises ValueError if it does not wait for a truth, and WrongType for anything else.
    """
    id = prediction.id if isinstance(prediction, Prediction) else prediction
    if isinstance(id, str):
        return id
    if id is None:
        raise ValueError(
            "this prediction was made with wait=False and waits for no truth; report one with its input `x`"
        )
    raise WrongType.at("/id", f"must be a string or a Prediction, not {type(id).__name__}")


COLUMNS: Final = {
    "values": ("value",),
    "lows": ("low",),
    "highs": ("high",),
    "labels": ("label",),
    "scores": ("score",),
    "probabilities": ("probability", "probabilities"),
    "sets": ("set",),
}
"""Columns of many forecasts, with the Prediction fields that fill each of them."""


@final
class Predictions(Sequence[Prediction]):
    """Forecasts of many inputs, in order."""

    def __init__(self, predictions: Sequence[Prediction], form: Form = NO_FRAME) -> None:
        self._predictions, self._form = list(predictions), form

    def __len__(self) -> int:
        return len(self._predictions)

    def __getitem__(self, index: Any) -> Any:
        return self._predictions[index]

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self._predictions)

    def __repr__(self) -> str:
        return f"Predictions({self._predictions!r})"

    def columns(self) -> dict[str, Sequence[Any]]:
        """The forecasts as columns by name, like `Played.columns`."""
        columns: dict[str, Sequence[Any]] = {}
        for name, members in COLUMNS.items():
            rows = [[getattr(prediction, member) for member in members] for prediction in self._predictions]
            column = [next((part for part in row if part is not None), None) for row in rows]
            if any(part is not None for part in column):
                columns[name] = column
        return columns

    def to_frame(self) -> Any:
        """The columns as a data frame, like `Played.to_frame`."""
        return self._form.frame(self.columns())


@dataclass(frozen=True, slots=True)
class Learned(Answer):
    """Round `t` after it was learned, with its loss.

    A classifier sets `mistake`, a regressor `error` (forecast minus truth). `duplicate`: the id had been learned before.
    """

    session: str
    id: str | None
    t: int
    loss: float
    mistake: bool | None = None
    error: float | None = None
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Played(Answer):
    """A block of rounds, predicted and learned in order up to round `t`. Each sequence has one entry per round."""

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

    def _repr_html_(self) -> str:
        shown = {name: getattr(self, name) for name in ("session", "t", "rounds", "loss", "mistakes")}
        return table("okl.Played", shown | {"forecasts": ", ".join(self.columns()) or None})

    def columns(self) -> dict[str, Sequence[Any]]:
        """The forecasts as columns by name."""
        return {name: column for name in COLUMNS if (column := getattr(self, name)) is not None}

    def to_frame(self) -> Any:
        """The columns as a data frame of the inputs' library (for pandas with their index), otherwise as a dict of arrays."""
        return self.form.frame(self.columns())

    @classmethod
    def joined(cls, parts: Sequence[Played], form: Form = NO_FRAME) -> Played:
        """Concatenate the blocks of one stream. Raises ValueError if there are none.

        Forecasts are None for a block whose answer was lost and whose forecasts are no longer known.
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
