"""Online kernel learning: learners with regret guarantees, and a service that hosts them.

`import okl` is all that a program needs. Names are imported on first use, so a program that uses only the client never
imports NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from okl import errors as errors
    from okl import river as river
    from okl import sklearn as sklearn
    from okl.answers import Learned, Played, Prediction
    from okl.client import AsyncClient, Client
    from okl.comparing import Comparison, compare
    from okl.errors import ServiceError
    from okl.local import local
    from okl.remote import RemoteClassifier, RemoteRegressor
    from okl.session import AsyncSession, Session
    from okl_core import LearnerSpec, OnlineLearner, create, restore

__version__ = "0.1.0"
__all__ = [
    "AsyncClient",
    "AsyncSession",
    "Client",
    "Comparison",
    "Learned",
    "LearnerSpec",
    "OnlineLearner",
    "Played",
    "Prediction",
    "RemoteClassifier",
    "RemoteRegressor",
    "ServiceError",
    "Session",
    "compare",
    "create",
    "local",
    "restore",
]

_WHERE: Final = {
    "AsyncClient": "okl.client",
    "AsyncSession": "okl.session",
    "Client": "okl.client",
    "Comparison": "okl.comparing",
    "Learned": "okl.answers",
    "LearnerSpec": "okl_core",
    "OnlineLearner": "okl_core",
    "Played": "okl.answers",
    "Prediction": "okl.answers",
    "RemoteClassifier": "okl.remote",
    "RemoteRegressor": "okl.remote",
    "ServiceError": "okl.errors",
    "Session": "okl.session",
    "compare": "okl.comparing",
    "create": "okl_core",
    "local": "okl.local",
    "restore": "okl_core",
}

_MODULES: Final = ("errors", "river", "sklearn")
"""Not in `__all__`: `from okl import *` works without the extras."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        try:
            return import_module(f"okl.{name}")
        except ImportError as error:  # `hasattr`, `inspect` and `help` expect this one for what is not there
            raise AttributeError(str(error)) from error
    if name not in _WHERE:
        raise AttributeError(f"module 'okl' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__, *_MODULES]
