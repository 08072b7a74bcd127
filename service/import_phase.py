"""The time in which a command imports its modules: signals do not involve Python, and nothing is garbage-collected."""

from __future__ import annotations

import gc
import os
import signal


def begin() -> None:
    """From here on a signal ends the process at once.

    An exception raised by a signal in the middle of an import is printed with a traceback, or swallowed by the imported
    module (numpy does so). Imported objects stay alive, so collections would take a tenth of the imports' time for nothing.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()


def end() -> None:
    """From here on Ctrl-C raises an exception, and SIGTERM ends the process even if it is a container's first process.

    The imported objects are frozen: otherwise the first collection, which is soon, would traverse all of them and take a
    twentieth of the start.
    """
    gc.freeze()
    gc.enable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
