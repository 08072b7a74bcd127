"""The answer to `GET /metrics`: the metrics of all workers of this host, and of the sessions."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from typing import Final, final

from .. import __version__
from .board import Board
from .census import Census
from .counts import Counts, Sample
from .families import type_for

log = logging.getLogger("okl")

EVERY_S: Final = 1.0
_STATM: Final = "/proc/self/statm"


@final
class Exposition:
    """Measures the lag of the event loop once a second, and publishes this worker's metrics to the others of the host.

    If there are other workers, each reports its own metrics as published, so that all answers agree and no counter decreases.
    """

    def __init__(self, counts: Counts, census: Census, board: Board, *, store: str) -> None:
        self._counts = counts
        self._census = census
        self._board = board
        self._about: Sample = ("okl_build_info", [__version__, store], 1.0)
        self._timer: asyncio.TimerHandle | None = None
        self._under_way: dict[str, asyncio.Task[bytes]] = {}

    def start(self) -> None:
        """Raises OSError if the folder of the board cannot be used."""
        self._board.open()
        self._publish()
        self._wait()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._census.close()
        self._board.close()

    async def answer(self, accept: str) -> tuple[bytes, str]:
        """The text and its content type. Concurrent requests share one answer."""
        kind = type_for(accept)
        task = self._under_way.get(kind)
        if task is None:
            task = self._under_way[kind] = asyncio.create_task(self._make(kind))
            task.add_done_callback(lambda _: self._under_way.pop(kind))
        return await asyncio.shield(task), kind

    async def _make(self, kind: str) -> bytes:
        sessions = await self._census.samples()
        workers = {} if self._board.is_shared else {self._board.worker: self._samples()}

        def write() -> bytes:
            from .written import Figures, written  # load prometheus-client only when needed

            return written(Figures(workers or self._board.read(), sessions), kind)

        return await asyncio.to_thread(write)

    def _samples(self) -> list[Sample]:
        process: list[Sample] = [
            self._about,
            ("okl_worker_seen_timestamp_seconds", [], time.time()),
            ("okl_worker_cpu_seconds", [], time.process_time()),
        ]
        try:
            with open(_STATM, encoding="ascii") as file:
                process.append(("okl_worker_memory_bytes", [], float(file.read().split()[1]) * resource.getpagesize()))
        except (OSError, IndexError, ValueError):
            pass  # not Linux
        return process + self._counts.samples()

    def _publish(self) -> None:
        if self._board.is_shared:
            try:
                self._board.publish(self._samples())
            except OSError as error:
                log.warning("metrics cannot be told to other workers", extra={"detail": str(error)})

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(loop.time() + EVERY_S, self._look, loop, loop.time() + EVERY_S)

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._counts.loop_lag.add(max(0.0, loop.time() - due))
        self._publish()
        self._wait()
