"""Inputs and truths that are read one after the other, since each may make something known to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import numpy as np

from okl_core.records.fields import Fields
from okl_core.records.record import Raw
from okl_core.types import F64

from .definition import Scalar
from .session import Session
from .task import Task, read_truth

T = TypeVar("T")


def read_in_order(
    session: Session,
    inputs: Iterable[T],
    truths: Sequence[Scalar],
    read: Callable[[T, Fields | None], Raw],
    named: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> tuple[list[Raw], F64, list[Task]]:
    """The inputs as `read` returns them, the truths in the learner's terms, and the task that knows each.

    `read` is given the fields that an earlier input has fixed. `named` makes the errors of a row name it.
    """
    raws: list[Raw] = []
    tasks: list[Task] = []
    y, fields, task = np.empty(len(truths)), session.fields, session.task
    for i, (sent, truth) in enumerate(zip(inputs, truths, strict=True)):
        with named(i):
            raws.append(read(sent, fields))
            if i == 0:
                fields = session.fields_after(raws[0])
            y[i], task = read_truth(session.definition, task, truth)
        tasks.append(task)
    return raws, y, tasks
