"""A session's snapshot: named arrays and a JSON document. With the definition it is everything."""

from __future__ import annotations

from okl_core import FrozenLearner, LearnerSpec, ReservoirLearner, restore
from okl_core.contract.state import from_bytes, to_bytes
from okl_core.errors import StateError, StateFormatError
from okl_core.linalg.arithmetic import arithmetic
from okl_core.linalg.growing import GrowingArray
from okl_core.types import F64
from service.errors import StateCorrupt
from service.session.definition import Definition
from service.session.layout import Layout
from service.session.scaling import Scaling
from service.session.scorecard import Scorecard
from service.session.session import FrozenFrom, HostedLearner, Session


def pack(session: Session, position: str) -> bytes:
    """The session at a position, which names its identity and tip."""
    arrays = {f"card.{name}": array for name, array in session.card.pack().items()}
    if session.learner is not None:
        arrays |= {f"learner.{name}": array for name, array in session.learner.state().items()}
    if session.warmup is not None and session.warmup.rows is not None:
        arrays["warm"] = session.warmup.rows.pack()
    if session.scaling is not None:
        arrays |= {"scaling.low": session.scaling.low, "scaling.high": session.scaling.high}
    frozen = session.frozen
    meta = {
        "position": position,
        "arithmetic": arithmetic(),
        "warming_up": session.is_warming_up,
        "spec": session.spec.model_dump(mode="json"),
        "layout": None if session.layout is None else session.layout.encode().decode(),
        "frozen": None if frozen is None else [frozen.session, frozen.t, frozen.rule],
    }
    return to_bytes(arrays, meta)


def unpack(definition: Definition, blob: bytes, position: str) -> Session:
    """The session that `pack` was given. Raises StateCorrupt, also for the snapshot of another position."""
    session = Session(definition)
    try:
        arrays, meta = from_bytes(blob)
        if meta["position"] != position:
            raise StateFormatError(f"it is of position {meta['position']}, not {position}")
        session.card = Scorecard.unpack(_part(arrays, "card"))
        session.spec = LearnerSpec.model_validate(meta["spec"])
        if not meta["warming_up"]:
            session.warmup = None
        if meta["layout"] is not None:
            session.layout = Layout.decode(meta["layout"].encode())
        if meta["frozen"] is not None:
            session.frozen = FrozenFrom(*meta["frozen"])
        if session.layout is not None and (session.t > 0 or session.frozen is not None):
            session.learner = _restored(session, _part(arrays, "learner"), session.layout.dim)
        if session.warmup is not None and "warm" in arrays:
            session.warmup.rows = GrowingArray.unpack(arrays["warm"])
        if "scaling.low" in arrays:
            session.scaling = Scaling(arrays["scaling.low"], arrays["scaling.high"], session.input_radius)
    except (StateError, KeyError, ValueError, TypeError) as error:
        raise StateCorrupt(f"The snapshot of {definition.name!r} cannot be read: {error}") from error
    return session


def _restored(session: Session, arrays: dict[str, F64], dim: int) -> HostedLearner:
    if session.warmup is not None:
        return restore(session.stand_in, arrays, dim)
    if session.definition.reservoir:
        return ReservoirLearner.restore(session.spec, arrays, dim)
    learner = restore(session.spec, arrays, dim)
    return learner if session.frozen is None else FrozenLearner(learner, session.frozen.rule)


def _part(arrays: dict[str, F64], prefix: str) -> dict[str, F64]:
    return {name[len(prefix) + 1 :]: array for name, array in arrays.items() if name.startswith(f"{prefix}.")}
