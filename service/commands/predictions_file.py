"""A CSV file of predictions: whole lines, no row twice, also where the command that writes it was killed and runs again."""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, TextIO

from okl.errors import ConfigurationError

HEADER: Final = ("row", "truth", "prediction", "probability", "low", "high")


class PredictionsFile:
    """Lines go to a file beside `path`, with `.part` behind its name, which takes the place of `path` at the end, however
    that comes. If it was left behind by a process that was killed, its whole lines are kept.

    Raises ConfigurationError for a file that holds something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.next_row = 0
        """The row after the last one that is written."""
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
        """A prediction as the service answers it, unless this row is written already. Returns when a kill cannot lose it."""
        if row < self.next_row:
            return
        assert self._file is not None
        told = answer.get("value", answer.get("label"))
        probability = answer.get("probability", max(answer.get("probabilities") or [0.0]) or None)
        cells = (row, truth, told, probability, answer.get("low"), answer.get("high"))
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
    """Raises ConfigurationError where it, or the file with `.part` behind its name, holds something else."""
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
            raise ConfigurationError(f"{one} is no file of predictions; name another one.")


def _lines(file: BinaryIO) -> Iterator[str]:
    """Those that end."""
    while (line := file.readline()).endswith(b"\n"):
        yield line.decode("utf-8", "replace")


def _text(cell: Any) -> Any:
    return str(cell).lower() if isinstance(cell, bool) else cell
