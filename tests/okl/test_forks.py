"""A process that is forked from one with a client shares neither its connection nor its ids."""

from __future__ import annotations

import subprocess
import sys

from okl.client import Client

FORKED = """
import os, sys
import okl

ROUNDS = 20

client = okl.Client(sys.argv[1])
session = client.session("forked", "mean", dim=1)
stream = session.stream()
children = []
for _ in range(2):
    if not (child := os.fork()):
        for _ in range(ROUNDS):
            assert not session.learn([1.0], 2.0).duplicate
        try:
            stream.one({"x": [1.0]})
        except RuntimeError as error:
            assert "another process" in str(error)
        else:
            os._exit(2)
        stream.close()
        os._exit(0)
    children.append(child)
for _ in range(ROUNDS):
    assert not session.learn([1.0], 2.0).duplicate
ended = [os.waitpid(child, 0)[1] for child in children]
assert ended == [0, 0], ended
assert stream.one({"x": [1.0], "y": 2.0})["t"] == 3 * ROUNDS + 1
"""


def test_each_process_has_its_own(url: str, client: Client) -> None:
    """In a process of its own: that of the tests has threads, and a fork of it would hold their locks."""
    ended = subprocess.run([sys.executable, "-c", FORKED, url], capture_output=True, text=True, timeout=60.0)
    assert ended.returncode == 0, ended.stderr
    assert client.inspect("forked")["t"] == 61
