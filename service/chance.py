"""Random jitter for pauses, so that workers that started together do not stay in step.

It has its own generator, since other code may seed the global one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from okl.errors import ServiceError

BY_CHANCE: Final = random.Random()


async def sweep_forever(
    sweep: Callable[[], Awaitable[object]], every_s: float, log: logging.Logger, trouble: str
) -> None:
    """Call `sweep` about every `every_s` seconds. What it raises is logged, a ServiceError with `trouble` as the message."""
    while True:
        try:
            await sweep()
        except ServiceError as error:
            log.warning(trouble, extra={"detail": error.detail})
        except Exception:
            log.exception("unexpected error")
        await asyncio.sleep(every_s * BY_CHANCE.uniform(0.8, 1.2))
