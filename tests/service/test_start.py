"""What happens before a command begins: the choice of the BLAS kernels, the same on almost every machine, and the imports."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from service.blas_kernels import (
    CORE_TYPE,
    SETTING,
    THREADS,
    check_choice,
    choose,
    prepare,
    processor_features,
    read_choice,
)
from service.commands.outcome import errors_in_a_line
from service.server import application
from tests.command import environment

AVX2 = ("pni", "sse4_2", "avx", "avx2", "fma")
AVX512 = (*AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")

CHOICES = {
    "AVX2": ("auto", "x86_64", AVX2, "Haswell"),
    "AVX-512 takes what AVX2 takes": ("auto", "x86_64", AVX512, "Haswell"),
    "AVX2 without FMA": ("auto", "x86_64", ("pni", "avx", "avx2"), "Prescott"),
    "an old processor": ("auto", "x86_64", ("pni",), "Prescott"),
    "ARM": ("auto", "aarch64", ("asimd", "sve"), "ARMV8"),
    "a processor of another kind": ("auto", "riscv64", ("rv64",), None),
    "nobody tells": ("auto", "x86_64", None, None),
    "native": ("native", "x86_64", AVX512, None),
    "a name": ("SkylakeX", "x86_64", AVX512, "SkylakeX"),
    "a name in small letters": ("skylakex", "x86_64", AVX512, "SkylakeX"),
    "a name where nobody tells": ("SkylakeX", "x86_64", None, "SkylakeX"),
}


@pytest.mark.parametrize(("choice", "machine", "features", "kernels"), CHOICES.values(), ids=CHOICES)
def test_the_choice(choice: str, machine: str, features: tuple[str, ...] | None, kernels: str | None) -> None:
    assert choose(choice, machine, features) == kernels


def test_kernels_that_would_kill_the_process_are_refused() -> None:
    with pytest.raises(ValueError, match="lacks avx512bw"):
        choose("SkylakeX", "x86_64", AVX2)
    with pytest.raises(ValueError, match="lacks asimd"):
        choose("ARMV8", "x86_64", AVX2)


def test_a_name_that_openblas_would_ignore_is_refused() -> None:
    with pytest.raises(ValueError, match="Haswell"):
        check_choice("haswel")


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_choice({}) == "auto"
    (tmp_path / "okl.toml").write_text('blas_kernels = "native"\n')
    assert read_choice({}) == "native"
    assert read_choice({"okl_blas_kernels": "Zen"}) == "Zen"
    other = tmp_path / "other.toml"
    other.write_text('blas_kernels = "Nehalem"\n')
    assert read_choice({"OKL_CONFIG_FILE": str(other)}) == "Nehalem"


@pytest.mark.parametrize("content", ["not toml", "blas_kernels = 5", "port = 5"])
def test_what_is_wrong_with_the_file_is_left_to_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "okl.toml").write_text(content)
    assert read_choice({}) == "auto"


def test_what_is_set_already_stays() -> None:
    environ = {CORE_TYPE: "Nehalem", THREADS: "2", SETTING: "haswel"}
    prepare(environ)
    assert (environ[CORE_TYPE], environ[THREADS]) == ("Nehalem", "2")


# -- in a process -----------------------------------------------------------------------------------------------------

COMPUTES = """
import os, sys
from service.blas_kernels import prepare
prepare(os.environ)
assert "numpy" not in sys.modules
import numpy, scipy.linalg.blas, threadpoolctl
print(*sorted({(f"{found['architecture']} {found['num_threads']}") for found in threadpoolctl.threadpool_info()}), sep=",")
"""


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    mine = environment(**variables)
    return subprocess.run(
        [sys.executable, *command], env=mine, capture_output=True, text=True, timeout=120, check=False
    )


def computes(**variables: str) -> str:
    ran = run("-c", COMPUTES, **variables)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


x86 = pytest.mark.skipif(
    platform.machine() != "x86_64" or not {"avx2", "fma"} <= set(processor_features() or ()),
    reason="the kernels asked for are those of x86-64 with AVX2 and FMA, which another processor cannot run",
)


@x86
def test_openblas_runs_what_was_chosen() -> None:
    assert computes() == "Haswell 1"
    assert computes(OKL_BLAS_KERNELS="nehalem") == "Nehalem 1"
    # What OpenBLAS calls its kernels for processors before Nehalem depends on how it was built.
    assert computes(OKL_BLAS_KERNELS="Prescott") in ("Katmai 1", "Prescott 1", "Core2 1")
    assert computes(OPENBLAS_CORETYPE="Nehalem", OKL_BLAS_KERNELS="Haswell") == "Nehalem 1"


@x86
def test_native_leaves_openblas_to_itself() -> None:
    alone = COMPUTES.replace("prepare(os.environ)", "")
    assert computes(OKL_BLAS_KERNELS="native") == run("-c", alone, OPENBLAS_NUM_THREADS="1").stdout.strip()


@x86
def test_the_command_computes_with_what_was_chosen() -> None:
    told = run("-m", "service.start", "version", "--verbose", OKL_BLAS_KERNELS="Nehalem").stdout
    assert "Nehalem" in told
    assert "Haswell" not in told


def test_a_wrong_choice_is_told_in_a_line() -> None:
    ran = run("-m", "service.start", "version", OKL_BLAS_KERNELS="haswel")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.count("\n") == 1
    assert "OKL_BLAS_KERNELS: unknown kernels 'haswel'" in ran.stderr


def test_garbage_is_collected_when_all_is_imported() -> None:
    """By a command that has begun, and by a worker."""
    try:
        gc.disable()
        with errors_in_a_line():
            assert gc.isenabled()
        gc.disable()
        application()
        assert gc.isenabled()
    finally:
        gc.enable()


def test_a_command_ends_quietly_once_nobody_reads_its_output(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    ours = environment(PYTHONPATH=os.getcwd(), OKL_STORE=f"sqlite:///{tmp_path}/keys.sqlite3")
    command = [sys.executable, "-m", "okl"]
    subprocess.run([*command, "keys", "create", "me"], cwd=tmp_path, env=ours, check=True, capture_output=True)
    try:
        for arguments in (["--help"], ["version"], ["keys", "list"]):
            told = subprocess.run([*command, *arguments], cwd=tmp_path, env=ours, stdout=write, stderr=subprocess.PIPE)
            assert (told.returncode, told.stderr) == (141, b"")
    finally:
        os.close(write)
    # Without any standard output.
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *command, "keys", "list"]
    told = subprocess.run(shell, cwd=tmp_path, env=ours, stderr=subprocess.PIPE)
    assert (told.returncode, told.stderr) == (0, b"")


def test_a_command_whose_output_cannot_be_written_says_so_in_a_line(tmp_path: Path) -> None:
    ours = environment(PYTHONPATH=os.getcwd())
    command = [sys.executable, "-m", "okl"]
    with open("/dev/full", "w") as full, open("/dev/null") as unwritable:
        for arguments in (["--help"], ["--version"], ["version"], ["serve", "--help"]):
            told = subprocess.run([*command, *arguments], cwd=tmp_path, env=ours, stdout=full, stderr=subprocess.PIPE)
            assert told.stderr == b"Standard output cannot be written: No space left on device\n"
            assert told.returncode == 1
        told = subprocess.run([*command, "version"], env=ours, stdout=unwritable, stderr=subprocess.PIPE)
        assert (told.returncode, told.stderr) == (1, b"Standard output cannot be written: Bad file descriptor\n")
        assert subprocess.run([*command, "version"], env=ours, stdout=full, stderr=full).returncode == 1


def test_a_command_whose_progress_bar_finds_first_that_nobody_reads_ends_with_141() -> None:
    code = """
import threading
from service import cli, start

def app():
    bar = threading.Thread(target=print, args=["a line"], kwargs={"flush": True})
    bar.start()
    bar.join()

cli.app = app
start.main()
"""
    read, write = os.pipe()
    os.close(read)
    try:
        told = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE)
        assert (told.returncode, told.stderr) == (141, b"")
    finally:
        os.close(write)
