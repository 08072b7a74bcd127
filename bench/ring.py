"""Where sessions go as workers come and go: `python -m bench.ring [--sessions N] [--reload-ms MS]`.

The ring is that of nginx's `hash ... consistent` (ketama), point by point; `tests/deployment/test_ring.py` holds it to the
real one. For each change of the workers it prints

    moved     the share of sessions that have another worker afterwards, and the least share that must move
    most      the load of the busiest worker over the mean load, sessions being alike
    reload    CPU seconds that all workers together take to load the sessions that moved

and for one hot session how much of all load its worker has. `python -m bench.costs` measures what
a session costs to load.
"""

from __future__ import annotations

import argparse
import bisect
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import final

POINTS = 160
"""Of a server of weight 1 (ngx_http_upstream_hash_module.c)."""


@final
class Ring:
    """`servers` as in nginx's file: name or address, and port."""

    def __init__(self, servers: Sequence[str]) -> None:
        # Where two points coincide, nginx keeps one of them.
        points: dict[int, str] = {}
        for server in servers:
            host, _, port = server.rpartition(":")
            previous = b"\0\0\0\0"
            for _ in range(POINTS):
                point = zlib.crc32(host.encode() + b"\0" + port.encode() + previous)
                points.setdefault(point, server)
                previous = point.to_bytes(4, "little")
        self._hashes = sorted(points)
        self._servers = [points[point] for point in self._hashes]

    def order(self, key: str) -> list[str]:
        """The server of a key, then those that take over when the ones before do not answer."""
        first = bisect.bisect_left(self._hashes, zlib.crc32(key.encode()))
        return list(dict.fromkeys(self._servers[first:] + self._servers[:first]))

    def server(self, key: str) -> str:
        first = bisect.bisect_left(self._hashes, zlib.crc32(key.encode()))
        return self._servers[first % len(self._servers)]


def moved(before: Sequence[str], after: Sequence[str], keys: Sequence[str]) -> float:
    """The share of keys that another server has after the change."""
    old, new = Ring(before), Ring(after)
    return sum(old.server(key) != new.server(key) for key in keys) / len(keys)


def imbalance(servers: Sequence[str], keys: Sequence[str]) -> float:
    """The load of the busiest server over the mean load, where all keys are alike."""
    ring = Ring(servers)
    loads = Counter(ring.server(key) for key in keys)
    return max(loads.values()) * len(servers) / len(keys)


def hot_share(servers: Sequence[str], keys: Sequence[str], share: float) -> float:
    """The load of the busiest server over all load, where the first key has this share of it and the others the rest."""
    ring = Ring(servers)
    loads = dict.fromkeys(servers, 0.0)
    for number, key in enumerate(keys):
        loads[ring.server(key)] += share if number == 0 else (1 - share) / (len(keys) - 1)
    return max(loads.values())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--reload-ms", type=float, default=10.0, help="CPU ms to load a session: see bench.costs")
    options = parser.parse_args(arguments)
    keys = [f"session-{number}" for number in range(options.sessions)]
    nodes = [f"10.0.{number // 250}.{number % 250 + 2}:8000" for number in range(257)]
    print(f"{options.sessions} sessions, {options.reload_ms} ms to load one")
    print(f"{'workers':>16}{'moved':>9}{'least':>9}{'most':>9}{'reload':>10}")
    for count in (2, 4, 16, 64, 256):
        changes = {f"{count}": count, f"{count} -> {count + 1}": count + 1, f"{count} -> {count - 1}": count - 1}
        if count < 256:
            changes[f"{count} -> {2 * count}"] = 2 * count
        for name, after in changes.items():
            share = moved(nodes[:count], nodes[:after], keys)
            least = abs(after - count) / max(after, count)
            most = imbalance(nodes[:after], keys)
            print(f"{name:>16}{share:9.3f}{least:9.3f}{most:9.2f}{share * len(keys) * options.reload_ms / 1e3:8.0f} s")
    print("\none session with a share of all load: the share of its worker")
    print(f"{'workers':>16}" + "".join(f"{f'{share:.0%}':>9}" for share in (0.01, 0.1, 0.5)))
    for count in (2, 4, 16, 64, 256):
        shares = (hot_share(nodes[:count], keys, share) for share in (0.01, 0.1, 0.5))
        print(f"{count:>16}" + "".join(f"{share:9.3f}" for share in shares))


if __name__ == "__main__":
    main()
