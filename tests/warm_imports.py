"""What a process of the service imports sooner or later: the fork server of tests/warm.py imports it first."""

from __future__ import annotations

import gc
import os
from importlib import import_module

from service.blas_kernels import prepare

MODULES = (
    "scipy.optimize",
    "service.app",
    "service.cli",
    "service.commands.consume",
    "service.commands.moves",
    "service.consuming.consumer",
    "service.demos.flights",
    "service.demos.magic",
    "service.server",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)

gc.disable()
prepare(os.environ)
for name in MODULES:
    import_module(name)
import_module("okl_core").learner_kinds()
gc.freeze()
