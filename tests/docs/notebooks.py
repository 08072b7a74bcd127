"""Executes the notebooks of docs/notebooks and saves what they print: `make notebooks`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import nbformat
from matplotlib import pyplot
from nbclient import NotebookClient
from traitlets.config import Config

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/notebooks"
CELL_WITHIN_S = 300


def executed(path: Path) -> Any:
    """The notebook as it is after a run from the repository's folder. Raises CellExecutionError."""
    notebook = nbformat.read(path, as_version=4)
    # A notebook that is read anywhere draws no window, and one process computes as the next.
    os.environ.update(MPLBACKEND="module://matplotlib_inline.backend_inline", OPENBLAS_NUM_THREADS="1")
    os.environ["PYTHONPATH"] = str(ROOT)
    NotebookClient(
        notebook,
        timeout=CELL_WITHIN_S,
        kernel_name="python3",
        config=Config({"KernelManager": {"transport": "ipc"}}),  # no port that others could listen to
        resources={"metadata": {"path": str(ROOT)}},
        record_timing=False,
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    return notebook


def texts(notebook: Any) -> Iterator[tuple[str, str]]:
    """What each cell printed, but for those whose output varies from run to run."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and is_same_each_time(cell):
            yield cell.source, "".join(output.text for output in cell.outputs if output.output_type == "stream")


def printed(notebook: Any) -> Iterator[tuple[str, str]]:
    """The same of a run in this process, which saves the start of a kernel and most imports."""
    names: dict[str, Any] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            out = StringIO()
            with redirect_stdout(out):
                exec(cell.source, names)
            if is_same_each_time(cell):
                yield cell.source, out.getvalue()
    pyplot.close("all")


def is_same_each_time(cell: Any) -> bool:
    """Whether a cell prints the same in every run."""
    return "varies" not in cell.metadata.get("tags", ())


if __name__ == "__main__":
    for path in [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        print(path.stem, flush=True)
        nbformat.write(executed(path), path)
