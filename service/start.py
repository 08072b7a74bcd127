"""The entry point of the command `okl`: chooses the BLAS kernels before numpy loads, then runs the command line."""

from __future__ import annotations

import io
import os
import sys

from . import import_phase
from .blas_kernels import SETTING, prepare


def main() -> None:
    """Run the command line."""
    import_phase.begin()
    for stream in (sys.stdout, sys.stderr):
        # A character that the locale's encoding lacks becomes a question mark, and no traceback.
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="replace")
    try:
        prepare(os.environ)
    except ValueError as error:
        print(f"{SETTING}: {error}.", file=sys.stderr)
        sys.exit(2)
    from .cli import app

    app()


if __name__ == "__main__":
    main()
