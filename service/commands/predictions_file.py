"""A CSV file of predictions, with whole lines and no row twice, even if the writing command is killed and run again."""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, TextIO

from okl.errors import ConfigurationError

from .options import check_out

HEADER: Final = ("row", "truth", "prediction", "probability", "low", "high")


class PredictionsFile:
    """Writes lines to `path` with the suffix `.part`, which replaces `path` on exit, even after an error. If a killed process
    left the part file behind, its whole lines are kept.

    Raises ConfigurationError for a file with other content.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.next_row = 0
        """The row after the last one written."""
        self._part = path.with_name(f"{path.name}.part")
        self._file: TextIO | None = None

    def __enter__(self) -> PredictionsFile:
        check_file(self.path)
        try:
            if not self._part.exists() and self.path.exists():
                shutil.copyfile(self.path, self._part)
            if self._part.exists():
                self._keep_whole_lines()
            self._file = self._part.open("a", encoding="utf-8", newline="")
        except OSError as error:
            raise ConfigurationError(f"{self.path} cannot be written: {error.strerror}.") from error
        if self._file.tell() == 0:
            csv.writer(self._file, lineterminator="\n").writerow(HEADER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        os.replace(self._part, self.path)

    def write(self, row: int, truth: Any, answer: dict[str, Any]) -> None:
        """Write a prediction as the service answers it, unless the row is written already. A kill after the return cannot
        lose it."""
        if row < self.next_row:
            return
        assert self._file is not None
        forecast = answer.get("value", answer.get("label"))
        probability = answer.get("probability", max(answer.get("probabilities") or [0.0]) or None)
        cells = (row, truth, forecast, probability, answer.get("low"), answer.get("high"))
        csv.writer(self._file, lineterminator="\n").writerow([_text(cell) for cell in cells])
        self._file.flush()
        self.next_row = row + 1

    def _keep_whole_lines(self) -> None:
        with self._part.open("r+b") as file:
            end = 0
            try:
                for i, cells in enumerate(csv.reader(_lines(file))):
                    if len(cells) != len(HEADER):
                        break
                    self.next_row, end = int(cells[0]) + 1 if i else 0, file.tell()
            except (csv.Error, ValueError):
                pass
            file.truncate(end)


def check_file(path: Path) -> None:
    """Raises ConfigurationError if the path is no file, or if the file or its part file has other content."""
    check_out(path)
    header = ",".join(HEADER).encode() + b"\n"
    for one in (path, path.with_name(f"{path.name}.part")):
        try:
            with one.open("rb") as file:
                found = file.read(len(header))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ConfigurationError(f"{one} cannot be read: {error.strerror}.") from error
        if not header.startswith(found):
            raise ConfigurationError(f"{one} is not a file of predictions; name another one.")


def _lines(file: BinaryIO) -> Iterator[str]:
    """The lines that end with a line feed."""
    while (line := file.readline()).endswith(b"\n"):
        yield line.decode("utf-8", "replace")


def _text(cell: Any) -> Any:
    return str(cell).lower() if isinstance(cell, bool) else cell
