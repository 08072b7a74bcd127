"""The entry point of the command `okl`: chooses the BLAS kernels before numpy loads, then runs the command line.

OpenBLAS chooses its kernels by the processor, and each kind of kernels sums in a different order. So a session that is
replayed on another machine would differ in the last bits. `OKL_BLAS_KERNELS` chooses the kernels:

    auto        Haswell if the processor has AVX2 and FMA, else the most general; the same on almost every machine
    native      the choice of OpenBLAS, the fastest for the present machine
    Haswell     or another kind by its name in OpenBLAS

numpy's functions still depend on the processor: with AVX-512 its `exp` differs in the last bit, and is five times as fast.
`okl version --verbose` shows all that matters.

An `OPENBLAS_CORETYPE` or `OPENBLAS_NUM_THREADS` in the environment takes precedence. Both are read while numpy loads, so this
module imports nothing that imports numpy.
"""

from __future__ import annotations

import gc
import io
import os
import platform
import signal
import sys
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NoReturn, final

SETTING = "OKL_BLAS_KERNELS"
CORE_TYPE = "OPENBLAS_CORETYPE"
THREADS = "OPENBLAS_NUM_THREADS"

FEATURES: Mapping[str, frozenset[str]] = {
    "Prescott": frozenset({"pni"}),
    "Nehalem": frozenset({"sse4_2"}),
    "Sandybridge": frozenset({"avx"}),
    "Haswell": frozenset({"avx2", "fma"}),
    "Zen": frozenset({"avx2", "fma"}),
    "SkylakeX": frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    "Cooperlake": frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16"}),
    "SapphireRapids": frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16"}),
    "ARMV8": frozenset({"asimd"}),
    "NEOVERSEN1": frozenset({"asimd"}),
    "NEOVERSEV1": frozenset({"asimd", "sve"}),
}
"""The kinds of kernels to choose from, and the processor features that they need, by their Linux names."""

ALIKE: Mapping[str, tuple[str, ...]] = {"x86_64": ("Haswell", "Prescott"), "aarch64": ("ARMV8",)}
"""The candidates of `auto`, which takes the first that the processor can run."""


def check_choice(choice: str) -> str:
    """The setting in its canonical spelling. Raises ValueError for a name that OpenBLAS would silently ignore."""
    known = {name.lower(): name for name in ("auto", "native", *FEATURES)}
    if choice.lower() not in known:
        raise ValueError(f"unknown kernels {choice!r}; known: {', '.join(known.values())}")
    return known[choice.lower()]


def choose(choice: str, machine: str, features: Collection[str] | None) -> str | None:
    """The kernels to request of OpenBLAS; None to let it choose.

    `features` are the processor's, None if they are unknown: then `auto` lets OpenBLAS choose. Raises ValueError for kernels
    that the processor cannot run, since the first product would kill the process.
    """
    choice = check_choice(choice)
    if choice == "native":
        return None
    if choice == "auto":
        runs = (name for name in ALIKE.get(machine, ()) if features is not None and FEATURES[name] <= set(features))
        return next(runs, None)
    missing = FEATURES[choice] - set(FEATURES[choice] if features is None else features)
    if missing:
        raise ValueError(f"this processor lacks {', '.join(sorted(missing))}, which the kernels {choice!r} need")
    return choice


def processor_features() -> Collection[str] | None:
    """The features of this machine's first processor; None if they are unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    flags = (line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features")))
    return next(flags, None)


def read_choice(environ: Mapping[str, str]) -> str:
    """The setting from the environment, else from the configuration file, else `auto`.

    An unreadable file counts as empty here: the settings, which read it again, report what is wrong with it.
    """
    for name, value in environ.items():
        if name.upper() == SETTING:
            return value
    try:
        with open(environ.get("OKL_CONFIG_FILE", "okl.toml"), "rb") as file:
            found = tomllib.load(file).get("blas_kernels", "auto")
    except (OSError, ValueError):
        return "auto"
    return found if isinstance(found, str) else "auto"


def prepare(environ: dict[str, str] | os._Environ[str]) -> None:
    """Set the variables that OpenBLAS reads, unless they are set. Raises ValueError for an impossible choice."""
    environ.setdefault(THREADS, "1")
    if CORE_TYPE not in environ:
        kernels = choose(read_choice(environ), platform.machine().replace("AMD64", "x86_64"), processor_features())
        if kernels is not None:
            environ[CORE_TYPE] = kernels


UNREAD = 128 + 13
"""The exit code of a command whose output nobody reads any more, as a shell reports a process killed by SIGPIPE (13)."""


@final
class Output(io.TextIOWrapper):
    """Standard output that ends the command once nobody reads it, as after `okl compare rows.csv | head -1`.

    SIGPIPE itself stays ignored: it would also end a service whose client has gone.
    """

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            self._end()

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._end()

    def _end(self) -> NoReturn:
        # What is still buffered has to go somewhere when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
        sys.exit(UNREAD)


def main() -> None:
    """Run the command line."""
    # An exception raised by a signal in the middle of an import is printed with a traceback, or swallowed by the imported
    # module (numpy does so). Until a command has imported all it needs, signals end the process without involving Python.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        # A character that the locale's encoding lacks becomes a question mark, and no traceback.
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="replace")
    # Python has no standard output if it was closed before the start.
    given, output = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"), None
    if isinstance(given, io.TextIOWrapper):
        sys.stdout = output = Output(given.buffer, given.encoding, given.errors, line_buffering=given.line_buffering)
    try:
        prepare(os.environ)
    except ValueError as error:
        print(f"{SETTING}: {error}.", file=sys.stderr)
        sys.exit(2)
    # Imported objects stay alive: collections during the imports would take a tenth of their time for nothing.
    gc.disable()
    from .cli import app

    try:
        app()
    finally:
        if output is not None:
            output.flush()


def heed_signals() -> None:
    """From here on Ctrl-C raises an exception, and SIGTERM ends the process even if it is a container's first process.

    All modules are imported, so garbage collection starts. The imported objects are frozen: otherwise the first collection,
    which is soon, would traverse all of them and take a twentieth of the start.
    """
    gc.freeze()
    gc.enable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


if __name__ == "__main__":
    main()
