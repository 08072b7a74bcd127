"""Draws the architecture from the imports: `make docs`, or `python -m tests.docs.architecture`.

Each folder of `service`, `okl` and `okl_core` is a box, and so is each module beside them. A box stands one floor above the
highest that it imports; an arrow says that it does, and is left out where a way over other boxes says so already. Imports
inside of functions count, those for types alone do not. Whatever imports in a circle has no floor: `floors` refuses it.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIGURE = ROOT / "docs" / "figures" / "architecture.svg"

CORE, CLIENT, SERVICE = "okl_core", "okl", "service"
PACKAGES = (SERVICE, CLIENT, CORE)

Edges = dict[str, set[str]]
"""What each box imports."""

# -- the imports ------------------------------------------------------------------------------------------------------


def box_of(module: str) -> str:
    """The folder or root module that a module belongs to; the package itself for its `__init__`."""
    return ".".join(module.split(".")[:2])


def modules(package: str) -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def imported(path: Path, known: Iterable[str]) -> set[str]:
    """The modules of ours that a file imports, sooner or later."""
    names: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = ".".join((*parts, *([node.module] if node.module else ())))
            names |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return names & set(known)


def edges() -> Edges:
    """What each box imports of the others; another package is one box."""
    known = {module: path for package in PACKAGES for module, path in modules(package).items()}
    found: Edges = {}
    for module, path in known.items():
        box = box_of(module)
        if module in PACKAGES:
            continue
        seen = found.setdefault(box, set())
        for name in imported(path, known):
            own, other = module.split(".")[0], name.split(".")[0]
            target = box_of(name) if own == other else other
            if target not in (box, own):
                seen.add(target)
    return found


def reached(box: str, graph: Edges) -> set[str]:
    """All that a box imports, directly or not."""
    found: set[str] = set()
    waiting = [*graph.get(box, ())]
    while waiting:
        if (other := waiting.pop()) not in found:
            found.add(other)
            waiting += graph.get(other, ())
    return found


def reduced(graph: Edges) -> Edges:
    """The graph without what follows from the rest."""
    return {
        box: {one for one in seen if not any(one in reached(other, graph) for other in seen - {one})}
        for box, seen in graph.items()
    }


def floors(graph: Edges) -> dict[str, int]:
    """The floor of each box. Raises ValueError for boxes that import each other."""
    found: dict[str, int] = {}
    waiting = set(graph)
    while waiting:
        free = {box for box in waiting if all(other in found for other in graph[box] if other in graph)}
        if not free:
            raise ValueError(f"a circle of imports among {sorted(waiting)}")
        for box in free:
            found[box] = max((found[other] + 1 for other in graph[box] if other in graph), default=0)
        waiting -= free
    return found


# -- places -----------------------------------------------------------------------------------------------------------

FOLDER_WIDTH, FOLDER_HEIGHT = 196.0, 78.0
LINE = 36
"""Letters in a line of a folder's caption."""
MODULE_HEIGHT, LETTER = 26.0, 7.4
WAY_WIDTH = 10.0
GAP, FLOOR_GAP, MARGIN = 26.0, 40.0, 28.0
SWEEPS = 24


@dataclass
class Box:
    """A box, or with no name a place where an arrow passes a floor."""

    name: str
    width: float
    height: float
    caption: list[str] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0
    """The centre."""
    floor: tuple[float, float] = (0.0, 0.0)
    """Top and bottom of its floor."""


def make_box(name: str) -> Box:
    label = name.split(".")[-1]
    folder = ROOT / name.replace(".", "/")
    if not folder.is_dir():
        return Box(name, LETTER * len(label) + 22.0, MODULE_HEIGHT)
    told = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    sentence = " ".join(told.split()).partition(". ")[0].rstrip(".")
    return Box(name, FOLDER_WIDTH, FOLDER_HEIGHT, textwrap.wrap(sentence, LINE, max_lines=4, placeholder=" ..."))


@dataclass
class Panel:
    """One package: its boxes by floor, the lowest first, and the ways of its arrows, from box to box through places."""

    rows: list[list[Box]]
    ways: list[list[Box]]

    @property
    def boxes(self) -> list[Box]:
        return [box for row in self.rows for box in row]


def panel(graph: Edges) -> Panel:
    floor = floors(graph)
    boxes = {name: make_box(name) for name in sorted(graph)}
    rows: list[list[Box]] = [[] for _ in range(max(floor.values()) + 1)]
    for name, box in boxes.items():
        rows[floor[name]].append(box)
    ways = []
    for name, seen in sorted(reduced(graph).items()):
        for other in sorted(seen & set(graph)):
            way = [boxes[name]]
            for level in range(floor[name] - 1, floor[other], -1):
                rows[level].append(place := Box("", WAY_WIDTH, 0.0))
                way.append(place)
            ways.append([*way, boxes[other]])
    arrange(rows, ways)
    return Panel(rows, ways)


def arrange(rows: list[list[Box]], ways: list[list[Box]]) -> None:
    """Order each floor by the middle of its neighbours, then move the boxes towards them as far as they do not touch."""
    above: dict[int, list[Box]] = {}
    below: dict[int, list[Box]] = {}
    for way in ways:
        for upper, lower in pairwise(way):
            below.setdefault(id(upper), []).append(lower)
            above.setdefault(id(lower), []).append(upper)
    for row in rows:
        spread(row, [0.0] * len(row))
    best, least = [list(row) for row in rows], crossings(rows, below)
    for sweep in range(SWEEPS):
        near, order = (below, rows) if sweep % 2 == 0 else (above, rows[::-1])
        for row in order:
            row.sort(key=lambda box: mean([other.x for other in near.get(id(box), [])], box.x))
            spread(row, [box.x for box in row])
        if (found := crossings(rows, below)) < least:
            best, least = [list(row) for row in rows], found
    for row, ordered in zip(rows, best, strict=True):
        row[:] = ordered
        spread(row, [0.0] * len(row))
    for sweep in range(SWEEPS):
        order = rows if sweep % 2 == 0 else rows[::-1]
        for row in order:
            wanted = [mean([o.x for o in [*above.get(id(b), []), *below.get(id(b), [])]], b.x) for b in row]
            spread(row, wanted)


def mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def spread(row: list[Box], wanted: list[float]) -> None:
    """The places nearest to the wanted ones, in the mean of a sweep to the right and one to the left, without touching."""
    if not row:
        return

    def pushed(boxes: list[Box], places: list[float]) -> list[float]:
        found = [places[0]]
        for before, box, place in zip(boxes, boxes[1:], places[1:], strict=False):
            found.append(max(place, found[-1] + (before.width + box.width) / 2.0 + GAP))
        return found

    to_right = pushed(row, wanted)
    to_left = [-x for x in pushed(row[::-1], [-x for x in wanted[::-1]])][::-1]
    for box, right, left in zip(row, to_right, to_left, strict=True):
        box.x = (right + left) / 2.0


def crossings(rows: list[list[Box]], below: dict[int, list[Box]]) -> int:
    count = 0
    for row in rows[1:]:
        pairs = [(box.x, other.x) for box in row for other in below.get(id(box), [])]
        count += sum((a - c) * (b - d) < 0.0 for i, (a, b) in enumerate(pairs) for c, d in pairs[:i])
    return count


# -- drawing ----------------------------------------------------------------------------------------------------------

STYLE = """
text { font-family: Helvetica, Arial, sans-serif; fill: #1d2b3a; text-anchor: middle; }
.title { font-size: 17px; font-weight: bold; }
.said { font-size: 12px; fill: #54657a; }
.name { font-size: 13px; font-weight: bold; }
.caption { font-size: 9.5px; fill: #54657a; }
.panel { stroke-width: 1; }
.folder { fill: #ffffff; stroke-width: 1.4; }
.module { fill: #ffffff; stroke-width: 1; }
.way { fill: none; stroke-width: 1.3; opacity: 0.75; }
"""

COLOURS = {SERVICE: ("#eef4fb", "#3c6ea5"), CLIENT: ("#faf3e8", "#9a6a1f"), CORE: ("#f1f7ee", "#4a8244")}
TITLES = {
    SERVICE: "FastAPI: sessions, replicas, stores. Imports okl and okl_core, never the reverse",
    CLIENT: "What users import: the client, its errors, the library's names",
    CORE: "Kernels, losses, learners: no HTTP, no store, no clock",
}
HEAD = 52.0
ARROW = 5.0


def put(found: Panel, left: float, top: float, width: float) -> float:
    """Give the boxes their places on the page. The bottom of the panel."""
    least = min(box.x - box.width / 2.0 for box in found.boxes)
    most = max(box.x + box.width / 2.0 for box in found.boxes)
    shift = left + (width - (most - least)) / 2.0 - least
    y = top + HEAD
    for row in found.rows[::-1]:
        height = max(box.height for box in row)
        for box in row:
            box.x, box.y, box.floor = box.x + shift, y + height / 2.0, (y, y + height)
        y += height + FLOOR_GAP
    return y - FLOOR_GAP + MARGIN


def width_of(found: Panel) -> float:
    return max(b.x + b.width / 2.0 for b in found.boxes) - min(b.x - b.width / 2.0 for b in found.boxes)


def draw_way(way: list[Box], colour: str) -> str:
    """A curve that leaves a box downward, passes its places upright and enters the last box from above."""
    path = f"M{way[0].x:.1f},{way[0].y + way[0].height / 2.0:.1f} V{way[0].floor[1]:.1f}"
    for before, box in pairwise(way):
        y, top = before.floor[1], box.floor[0] - (ARROW if box is way[-1] else 0.0)
        bend = (top - y) / 2.0
        path += f" C{before.x:.1f},{y + bend:.1f} {box.x:.1f},{top - bend:.1f} {box.x:.1f},{top:.1f}"
        # Beside the boxes of a floor it runs straight.
        path += f" V{(box.y - box.height / 2.0 - ARROW if box is way[-1] else box.floor[1]):.1f}"
    mark = next(package for package in PACKAGES if colour == COLOURS[package][1])
    return f'<path class="way" d="{path}" stroke="{colour}" marker-end="url(#{mark})"/>'


def draw_box(box: Box, colour: str) -> list[str]:
    kind = "folder" if box.height > MODULE_HEIGHT else "module"
    x, y = box.x - box.width / 2.0, box.y - box.height / 2.0
    rectangle = f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
    drawn = [f'{rectangle} rx="{7 if kind == "folder" else 13}" stroke="{colour}"/>']
    label = box.name.split(".")[-1] + ("/" if kind == "folder" else "")
    lines = [("name", label), *(("caption", line) for line in box.caption)]
    first = box.y + 4.5 - 6.0 * len(box.caption)
    for i, (style, line) in enumerate(lines):
        down = first + (0.0 if i == 0 else 3.0 + 12.0 * i)
        drawn.append(f'<text class="{style}" x="{box.x:.1f}" y="{down:.1f}">{escape(line)}</text>')
    return drawn


def draw_panel(package: str, found: Panel, left: float, top: float, width: float, bottom: float) -> list[str]:
    fill, colour = COLOURS[package]
    size = f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{bottom - top:.1f}"'
    middle = left + width / 2.0
    drawn = [f'<rect class="panel" {size} rx="14" fill="{fill}" stroke="{colour}"/>']
    drawn.append(f'<text class="title" x="{middle:.1f}" y="{top + 23:.1f}">{package}</text>')
    drawn.append(f'<text class="said" x="{middle:.1f}" y="{top + 40:.1f}">{escape(TITLES[package])}</text>')
    drawn += [draw_way(way, colour) for way in found.ways]
    return drawn + [line for box in found.boxes if box.name for line in draw_box(box, colour)]


def svg() -> str:
    graph = edges()
    parts = {
        package: panel({box: seen for box, seen in graph.items() if box.startswith(f"{package}.")})
        for package in PACKAGES
    }
    width = max(width_of(found) for found in parts.values()) + 2.0 * MARGIN
    left, top = 10.0, 10.0
    drawn: list[str] = []
    for package, found in parts.items():
        bottom = put(found, left, top, width)
        drawn += draw_panel(package, found, left, top, width, bottom)
        top = bottom + FLOOR_GAP
        if package != PACKAGES[-1]:
            middle = left + width / 2.0
            ends = [Box("", 0.0, 0.0, x=middle, y=y, floor=(y, y)) for y in (bottom, top)]
            drawn.append(draw_way(ends, COLOURS[package][1]))
    height = top - FLOOR_GAP + 10.0
    marks = "".join(
        f'<marker id="{package}" viewBox="0 0 8 8" refX="3" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{COLOURS[package][1]}"/></marker>'
        for package in PACKAGES
    )
    size = f'width="{width + 20:.0f}" height="{height:.0f}" viewBox="0 0 {width + 20:.0f} {height:.0f}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{STYLE}</style>", f"<defs>{marks}</defs>"]
    lines.append('<rect width="100%" height="100%" fill="#ffffff"/>')
    return "\n".join([*lines, *drawn, "</svg>\n"])


def main() -> None:
    FIGURE.write_text(svg())
    print(FIGURE)


if __name__ == "__main__":
    main()
