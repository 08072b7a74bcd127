"""The entry point of the command `okl`: chooses the BLAS kernels before numpy loads, then runs the command line."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import NoReturn, final

from . import import_phase
from .blas_kernels import SETTING, prepare

UNREAD = 128 + 13
"""The exit code of a command whose output nobody reads any more, as a shell reports a process killed by SIGPIPE (13)."""
STANDARD_ERROR = 2
UNWRITABLE = 1
"""The exit code of a command whose output cannot be written, as to a full disk."""


@final
class Output(io.TextIOWrapper):
    """Standard output that ends the command once nobody reads it, as after `okl compare rows.csv | head -1`, or once it
    cannot be written, with a line on standard error.

    SIGPIPE itself stays ignored: it would also end a service whose client has gone.
    """

    exit_code: int | None = None
    """Set once it has failed: in a thread, such as that of a progress bar, SystemExit ends only the thread."""

    def write(self, text: str, /) -> int:
        if self.exit_code is not None:
            sys.exit(self.exit_code)
        try:
            return super().write(text)
        except OSError as error:
            self._end(error)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> NoReturn:
        is_unread = isinstance(error, BrokenPipeError)
        self.exit_code = UNREAD if is_unread else UNWRITABLE
        # What is still buffered has to go somewhere when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
        if not is_unread:
            with suppress(OSError):
                print(f"Standard output cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(self.exit_code)


def _open_standard_streams() -> None:
    """Open those of descriptors 0 to 2 that were closed before the start, on the null device, also for worker processes.

    Otherwise a socket gets such a number, is taken for standard error, and makes libuv abort when it is closed.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STANDARD_ERROR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    # Python has none of the streams that were closed.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def main() -> None:
    """Run the command line."""
    import_phase.begin()
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        # A character that the locale's encoding lacks becomes a question mark, and no traceback.
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="replace")
    given, output = sys.stdout, None
    if isinstance(given, io.TextIOWrapper):
        sys.stdout = output = Output(given.buffer, given.encoding, given.errors, line_buffering=given.line_buffering)
    try:
        prepare(os.environ)
    except ValueError as error:
        print(f"{SETTING}: {error}.", file=sys.stderr)
        sys.exit(2)
    from .cli import app

    try:
        app()
    finally:
        if output is not None:
            output.flush()
            if output.exit_code is not None:
                sys.exit(output.exit_code)


if __name__ == "__main__":
    main()
