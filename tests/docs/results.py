"""What all benches of bench/results have printed, for bench/results.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from bench.record import RESULTS

BENCH = RESULTS.parent
FIGURES = BENCH.parent / "docs" / "figures"


class Printed(NamedTuple):
    """A file of bench/results."""

    file: str
    name: str
    measured: str
    """As bench/README.md has it."""
    command: str
    machine: str
    more: list[str]
    """The exit code, if it is 1."""
    output: str


def read(file: Path, described: str) -> Printed:
    head, _, output = file.read_text().partition("\n\n")
    command, machine, *more = (line.removeprefix("# ") for line in head.splitlines())
    name = command.split()[2].removeprefix("bench.")
    found = re.search(
        rf"^\| `python -m bench\.{re.escape(name)}` \| (.+?)(?:; not part of `make bench`)? \|$", described, re.M
    )
    if found is None:
        raise ValueError(f"the table of bench/README.md has no bench.{name}")
    return Printed(file.relative_to(BENCH).as_posix(), name, found[1], command, machine, more, output)


def results() -> str:
    """An index, and a section a file."""
    described = (BENCH / "README.md").read_text()
    found = [read(file, described) for file in sorted(RESULTS.rglob("*.txt"))]
    rows = [f"| [{one.name}](#{one.name.replace('.', '')}) | {one.measured} | {one.machine} |\n" for one in found]
    return "\n".join(["".join(["| bench | what | run |\n|---|---|---|\n", *rows]), *map(section, found)])


def section(one: Printed) -> str:
    told = [f"`{one.command}`", f"[{one.file}]({one.file})", one.machine, *one.more]
    parts = [f"## {one.name}", "; ".join(told) + ".", *map(shown, figures(one)), body(one.output)]
    return "\n\n".join(parts) + "\n"


def figures(one: Printed) -> list[Path]:
    """Those that the bench drew: the command has their names, or they begin with that of the bench."""
    own = re.compile(rf"{one.name.rpartition('.')[2]}(-\w+)?\.svg")
    named = one.command.split()
    return sorted(file for file in FIGURES.glob("*.svg") if file.name in named or own.fullmatch(file.name))


def shown(figure: Path) -> str:
    return f"![{figure.stem}](../docs/figures/{figure.name})"


def body(output: str) -> str:
    """Tables in Markdown as they are, one level below; columns of text as such."""
    if re.search(r"^\|", output, re.M):
        return re.sub(r"^#", "##", output.strip(), flags=re.M)
    return f"```text\n{output.rstrip()}\n```"
