"""Restriction of BLAS to one thread for the products of a round or a block.

BLAS divides a product among as many threads as it detects processors, and these threads busy-wait for each other. For a
learner's small products the waiting takes most of the time, and more so if a thread gets no processor because another
process uses it or a container has fewer: a block then takes 16 times as long as in one thread, or more (`bench.threads`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from threadpoolctl import LibController

UNDIVIDED_BYTES: Final = 9216 * 8
"""Size of a 96 x 96 matrix; OpenBLAS does not divide products with a smaller one."""


@final
class OneBlasThread:
    """Context manager that restricts BLAS to one thread, and restores the previous number of threads on exit.

    Some BLAS libraries have one setting per process: another thread that leaves its context may then restore it too early,
    which only costs time. Without threadpoolctl the context does nothing, since learners require only NumPy, SciPy and
    pydantic.
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
    """The BLAS libraries that currently use several threads, with the number of threads."""
    counts = [(library, library.get_num_threads() or 1) for library in _libraries()]
    return [(library, count) for library, count in counts if count > 1]


@cache
def _libraries() -> list[LibController]:
    """The loaded BLAS libraries. Cached, since finding them takes a millisecond."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return []
    return ThreadpoolController().select(user_api="blas").lib_controllers


_UNCHANGED: Final = nullcontext()


def needs_one_thread(nbytes: float) -> bool:
    """Whether BLAS would divide the rounds of a learner of this size among threads."""
    return nbytes >= UNDIVIDED_BYTES and bool(_divided())


def one_thread_if(is_needed: bool) -> AbstractContextManager[None]:
    return OneBlasThread() if is_needed else _UNCHANGED
