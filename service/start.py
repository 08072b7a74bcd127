"""The way in of the command `okl`: it chooses the kernels of the BLAS before numpy loads, then hands over.

OpenBLAS takes its kernels from the processor, and sums in another order with each kind of kernels. So a session that is
replayed on another machine would differ in the last bits. `OKL_BLAS_KERNELS` says which kernels to take:

    auto        Haswell where the processor has AVX2 and FMA, else the most general: almost every machine the same
    native      what OpenBLAS takes by itself, the fastest for the machine at hand
    Haswell     or another kind by its name in OpenBLAS

numpy's own functions still follow the processor: its `exp` differs in the last bit where there is AVX-512, and is five times
as fast there. `okl version --verbose` tells all that matters.

An `OPENBLAS_CORETYPE` or `OPENBLAS_NUM_THREADS` in the environment wins. Both are read while numpy loads, so this module
imports nothing that imports numpy.
"""

from __future__ import annotations

import gc
import os
import platform
import signal
import sys
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

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
"""The kinds of kernels that can be asked for, and what a processor needs to run them, as Linux names it."""

ALIKE: Mapping[str, tuple[str, ...]] = {"x86_64": ("Haswell", "Prescott"), "aarch64": ("ARMV8",)}
"""What `auto` takes: the first that the processor runs."""


def check_choice(choice: str) -> str:
    """The setting in its own spelling. Raises ValueError for a name that OpenBLAS would ignore without a word."""
    known = {name.lower(): name for name in ("auto", "native", *FEATURES)}
    if choice.lower() not in known:
        raise ValueError(f"there are no kernels {choice!r}; there are {', '.join(known.values())}")
    return known[choice.lower()]


def choose(choice: str, machine: str, features: Collection[str] | None) -> str | None:
    """The kernels to ask OpenBLAS for, None where it is left to itself.

    `features` are the processor's, None where nobody tells them: then `auto` leaves OpenBLAS to itself. Raises ValueError
    for kernels that the processor cannot run, since the first product would kill the process.
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
    """What the first processor of this machine can do; None where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    flags = (line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features")))
    return next(flags, None)


def read_choice(environ: Mapping[str, str]) -> str:
    """The setting from the environment, else from the configuration file, else `auto`.

    A file that cannot be read counts as empty here: the settings, which read it again, say what is wrong with it.
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
    """Set what OpenBLAS reads, where it is not set. Raises ValueError for a choice that cannot be."""
    environ.setdefault(THREADS, "1")
    if CORE_TYPE not in environ:
        kernels = choose(read_choice(environ), platform.machine().replace("AMD64", "x86_64"), processor_features())
        if kernels is not None:
            environ[CORE_TYPE] = kernels


def main() -> None:
    """Run the command line."""
    # What a signal raises in the middle of an import is printed with a traceback, or lost in what is imported (in numpy, as
    # the tests found). Until a command has all that it needs the signals end the process without asking Python.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        prepare(os.environ)
    except ValueError as error:
        print(f"{SETTING}: {error}.", file=sys.stderr)
        sys.exit(2)
    # What is imported stays: the collector would look through it again and again, a tenth of the time that it takes.
    gc.disable()
    from .cli import app

    app()


def heed_signals() -> None:
    """From here on Ctrl-C is an exception, and SIGTERM ends the process also where it is the first of a container.

    All is imported: from here on there is garbage too. What is imported is no longer young, or the first collection, which
    is soon, would look through all of it: a twentieth of a start.
    """
    gc.freeze()
    gc.enable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


if __name__ == "__main__":
    main()
