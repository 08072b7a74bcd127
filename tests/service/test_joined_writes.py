"""What a server writes in one turn of the loop leaves in one write."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from service.api.joined_writes import JoinedWrites
from service.api.socket_reads import SocketReads
from tests.service.worker import settle

pytestmark = pytest.mark.anyio


class Recorded(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes | str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.calls.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.calls.append(b"".join(list_of_data))

    def write_eof(self) -> None:
        self.calls.append("eof")

    def close(self) -> None:
        self.calls.append("close")

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def get_write_buffer_size(self) -> int:
        return 7

    def is_closing(self) -> bool:
        return False


def joined() -> tuple[JoinedWrites, Recorded]:
    stream = Recorded()
    return JoinedWrites(stream, asyncio.get_running_loop()), stream


async def test_a_head_and_its_body_leave_together() -> None:
    transport, stream = joined()
    transport.write(b"head ")
    assert stream.calls == []
    assert transport.get_write_buffer_size() == 12
    transport.write(b"body")
    assert stream.calls == [b"head body"]
    await settle()
    assert stream.calls == [b"head body"]


async def test_a_head_alone_leaves_with_the_turn() -> None:
    """A streamed answer may take its time for the first piece."""
    transport, stream = joined()
    transport.write(b"head")
    await settle()
    assert stream.calls == [b"head"]
    transport.writelines([b"a", b"b"])
    transport.write(b"c")
    transport.write(b"d")
    await settle()
    assert stream.calls == [b"head", b"abc", b"d"]


@pytest.mark.parametrize("last", ["close", "write_eof"])
async def test_nothing_is_left_behind(last: str) -> None:
    transport, stream = joined()
    transport.write(b"")
    transport.write(b"head")
    getattr(transport, last)()
    assert stream.calls == [b"head", last.removeprefix("write_")]
    await settle()
    assert len(stream.calls) == 2


async def test_the_rest_is_the_streams_own() -> None:
    transport, _ = joined()
    assert transport.is_closing() is False


async def test_a_server_pauses_the_stream_or_the_reads_of_a_socket() -> None:
    transport, stream = joined()
    transport.pause_reading()
    transport.resume_reading()
    assert stream.calls == ["pause", "resume"]
    handed_on: list[bytes] = []
    transport.reads = SocketReads(stream, asyncio.get_running_loop(), handed_on.append)
    transport.pause_reading()
    transport.reads.take(b"frame")
    assert handed_on == []
    transport.resume_reading()
    await settle()
    assert handed_on == [b"frame"]


async def test_nothing_follows_the_end() -> None:
    transport, stream = joined()
    transport.write(b"head")
    transport.write_eof()
    transport.write(b"body")
    await settle()
    assert stream.calls == [b"head", "eof"]


async def test_a_connection_that_lingers_is_closed_later() -> None:
    stream, asked = Recorded(), list[bool]()

    def linger() -> bool:
        asked.append(len(asked) == 0)
        return asked[-1]

    transport = JoinedWrites(stream, asyncio.get_running_loop(), linger)
    transport.close()
    assert stream.calls == []
    transport.close()
    assert stream.calls == ["close"]
