"""The copies that a worker keeps, bounded in bytes, with least-recently-used eviction."""

from __future__ import annotations

from collections import OrderedDict

from .replica import Replica

SIZE_EVERY = 64
"""The number of rounds and predictions after which a copy is measured again."""


class Replicas:
    """Copies by the names of their sessions."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._replicas: OrderedDict[str, Replica] = OrderedDict()
        self._sizes: dict[str, int] = {}
        """Each copy's share of `nbytes`: summing thousands of copies anew would take longer than a round."""
        self.nbytes = 0
        """The approximate memory of all copies."""

    def __len__(self) -> int:
        return len(self._replicas)

    def enter(self, name: str) -> Replica:
        """Return the copy of this session, which stays until `leave`; a new copy is not loaded yet."""
        replica = self._replicas.get(name)
        if replica is None:
            replica = self._replicas[name] = Replica(name)
        self._replicas.move_to_end(name)
        replica.is_used = True
        return replica

    def leave(self, replica: Replica) -> None:
        replica.is_used = False
        if replica.session is None or replica.is_deleted:
            # Names without a session must not pile up.
            self._drop(replica.name)
        else:
            self._count(replica)

    def discard(self, name: str) -> None:
        """Drop the copy of a deleted session, once no request uses it."""
        replica = self._replicas.get(name)
        if replica is not None and replica.is_used:
            replica.is_deleted = True
        else:
            self._drop(name)

    def forget(self, name: str, id: str) -> None:
        """Forget this prediction, if it is remembered here."""
        if name in self._replicas:
            self._replicas[name].forget([id])

    def answer_bytes(self, name: str) -> int:
        """The `answer_bytes` of the copy; 0 if there is none."""
        replica = self._replicas.get(name)
        return 0 if replica is None else replica.answer_bytes

    def note_growth(self, replica: Replica, added: int) -> None:
        """Count rounds and predictions; after every SIZE_EVERY of them, measure the copy and make room."""
        replica.added += added
        if replica.session is not None and replica.added >= SIZE_EVERY:
            replica.added = 0
            replica.measure(replica.session)
            self.make_room(replica)

    def make_room(self, newcomer: Replica) -> None:
        """Evict the least recently used copies that are not in use, until the rest fits."""
        self._count(newcomer)
        surplus, dropped = self.nbytes - self._most_bytes, list[str]()
        for replica in self._replicas.values():
            if surplus <= 0:
                break
            if replica is not newcomer and not replica.is_used:
                surplus -= self._sizes.get(replica.name, 0)
                dropped.append(replica.name)
        for name in dropped:
            self._drop(name)

    def _count(self, replica: Replica) -> None:
        self.nbytes += replica.nbytes - self._sizes.get(replica.name, 0)
        self._sizes[replica.name] = replica.nbytes

    def _drop(self, name: str) -> None:
        self._replicas.pop(name, None)
        self.nbytes -= self._sizes.pop(name, 0)
