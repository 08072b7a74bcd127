"""One thread of BLAS for the products of a round, and of a block of rounds.

BLAS divides a product among as many threads as it believes there are processors, which wait for each other in a loop. For a
learner's small products that loop takes most of the time, and all the more where a thread finds no processor, because another
process has it or a container gives fewer: a block takes 16 times as long as in one thread, or more (`bench.threads`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from threadpoolctl import LibController

UNDIVIDED_BYTES: Final = 9216 * 8
"""OpenBLAS divides no product with a matrix that is smaller: of 96 x 96 numbers."""


@final
class OneBlasThread:
    """A context in which the products of this thread are computed in one of BLAS; afterwards in as many as before.

    Some libraries keep one number for the process: another thread that leaves meanwhile may then put it back too early, which
    costs time alone. Without threadpoolctl nothing happens: learners need numpy, scipy and pydantic alone.
    """

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before: list[tuple[LibController, int]] = []

    def __enter__(self) -> None:
        self._before = _divided()
        for library, _ in self._before:
            library.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        for library, count in self._before:
            library.set_num_threads(count)


def _divided() -> list[tuple[LibController, int]]:
    """The libraries that compute in several threads now, and in how many."""
    counts = [(library, library.get_num_threads() or 1) for library in _libraries()]
    return [(library, count) for library, count in counts if count > 1]


@cache
def _libraries() -> list[LibController]:
    """Those of BLAS that are loaded. Looked for once: that takes a millisecond."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return []
    return ThreadpoolController().select(user_api="blas").lib_controllers


_AS_IT_IS: Final = nullcontext()


def needs_one_thread(nbytes: float) -> bool:
    """Would rounds of a learner that takes so many bytes be divided among threads?"""
    return nbytes >= UNDIVIDED_BYTES and bool(_divided())


def one_thread_if(is_needed: bool) -> AbstractContextManager[None]:
    return OneBlasThread() if is_needed else _AS_IT_IS
