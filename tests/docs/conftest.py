"""One thread of BLAS, as the service has: the products are small, and two threads that wait for each other cost a minute."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    with threadpool_limits(1):
        yield
