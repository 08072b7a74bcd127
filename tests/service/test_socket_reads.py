"""What comes on a socket is handed on whole and in order, and only as fast as it is taken."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import pytest

from service.api.socket_reads import SLICE_BYTES, SocketReads

pytestmark = pytest.mark.anyio

DATA = bytes(range(256)) * (20 * SLICE_BYTES // 256)


class Stream:
    """A connection that notes whether it is read from."""

    def __init__(self) -> None:
        self.is_reading, self.is_gone = True, False

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.is_gone


def reads_of(stream: Stream, taken: list[bytes], seconds: float = 0.0) -> SocketReads:
    def take(data: bytes) -> None:
        time.sleep(seconds)
        taken.append(data)

    return SocketReads(cast(asyncio.Transport, stream), asyncio.get_running_loop(), take)


async def test_what_is_read_fast_is_handed_on_at_once() -> None:
    stream, taken = Stream(), list[bytes]()
    reads = reads_of(stream, taken)
    reads.take(DATA[:SLICE_BYTES])
    assert taken == [DATA[:SLICE_BYTES]]
    assert stream.is_reading


async def test_others_have_their_turn_in_between() -> None:
    stream, taken = Stream(), list[bytes]()
    reads = reads_of(stream, taken, 0.003)
    reads.take(DATA)
    others = 0
    while not stream.is_reading:
        assert len(b"".join(taken)) < len(DATA)
        others += 1
        await asyncio.sleep(0)
    assert others >= 5
    assert b"".join(taken) == DATA


@pytest.mark.parametrize("who", ["the server", "the client"])
async def test_what_is_not_taken_is_not_handed_on(who: str) -> None:
    stream, taken = Stream(), list[bytes]()
    reads = reads_of(stream, taken, 0.006)
    reads.take(DATA)
    assert taken == [DATA[:SLICE_BYTES]]
    if who == "the server":
        reads.pause_reading()
    else:
        reads.stall(is_stalled=True)
    await asyncio.sleep(0.03)
    assert len(taken) == 1
    assert not stream.is_reading
    if who == "the server":
        reads.resume_reading()
    else:
        reads.stall(is_stalled=False)
    for _ in range(100):
        await asyncio.sleep(0)
    assert stream.is_reading
    assert b"".join(taken) == DATA


@pytest.mark.parametrize("first", ["the server", "the client"])
async def test_nothing_is_read_while_either_takes_nothing(first: str) -> None:
    """The server and the client, of whom one goes on before the other."""
    stream = Stream()
    reads = reads_of(stream, [])
    reads.pause_reading()
    assert not stream.is_reading
    reads.stall(is_stalled=True)
    if first == "the server":
        reads.resume_reading()
    else:
        reads.stall(is_stalled=False)
    assert not stream.is_reading
    if first == "the server":
        reads.stall(is_stalled=False)
    else:
        reads.resume_reading()
    assert stream.is_reading


async def test_nothing_is_handed_on_when_the_connection_is_gone() -> None:
    stream, taken = Stream(), list[bytes]()
    reads = reads_of(stream, taken, 0.006)
    reads.take(DATA)
    stream.is_gone = True
    await asyncio.sleep(0.03)
    reads.resume_reading()
    assert taken == [DATA[:SLICE_BYTES]]


async def test_nothing_is_handed_on_before_the_handshake_is_answered() -> None:
    stream, taken = Stream(), list[bytes]()
    reads = reads_of(stream, taken)
    reads.await_answer()
    assert not stream.is_reading
    reads.take(DATA)
    reads.pause_reading()
    reads.resume_reading()
    await asyncio.sleep(0)
    assert not taken
    reads.note_write()
    assert not taken, "the server is in the middle of its answer"
    for _ in range(20):
        await asyncio.sleep(0)
    assert stream.is_reading
    assert b"".join(taken) == DATA
