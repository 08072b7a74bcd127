"""The words that name what computes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy

from okl_core.linalg.arithmetic import arithmetic


def test_it_names_the_libraries_and_their_kernels() -> None:
    assert arithmetic().startswith(f"numpy {np.__version__} ")
    assert f"scipy {scipy.__version__}" in arithmetic()
    assert "openblas" in arithmetic()


@pytest.mark.slow
def test_another_kernel_is_another_arithmetic() -> None:
    def told(**variables: str) -> str:
        environment = os.environ | variables
        command = [sys.executable, "-c", "from okl_core.linalg.arithmetic import arithmetic; print(arithmetic())"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    other = "Prescott" if "Nehalem" in arithmetic() else "Nehalem"
    assert told() == arithmetic() != told(OPENBLAS_CORETYPE=other)
