"""`bench.sizes`: its exponents are those of what is known, and it measures every learner at every size."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import sizes
from bench.sizes import CAPS, Curve, exponent, lines, of_service
from tests.docs.pages import table_rows
from tests.warm import warm

SCENARIOS = {scenario.removesuffix("-magic") for scenario in CAPS}
CLASSES = {"one-vs-rest of aioli", "one-vs-rest of nystrom-aioli", "softmax-aioli"}
NAMES = {"dim": SCENARIOS | {"aioli"}, "budget": SCENARIOS, "classes": CLASSES}


def test_an_exponent_is_that_of_the_larger_half() -> None:
    found = [2.0, 2.0, 2.0, 2.0 * 8**1.5, 2.0 * 16**1.5, 2.0 * 32**1.5]
    assert exponent([1, 2, 4, 8, 16, 32], found) == pytest.approx((1.5, 0.0), abs=1e-7)
    assert exponent([1, 2, 3], [3.0, 6.0, 9.0]) == pytest.approx((1.0, 0.0), abs=1e-7)


def test_costs_are_told_as_multiples_of_the_smallest() -> None:
    (_, row) = table_rows("\n".join(lines("dim", [10, 100, 1000], [Curve("mean", "bytes", [1e4, 1e5, 1e6])])))[::2]
    assert row == ["mean", "10,000 bytes", "10.00", "100.00", "1.00 ± 0.00"]


def test_every_learner_is_in_the_tables_and_in_the_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes.main([*NAMES, "--quick", "--figure", str(figure := tmp_path / "sizes.svg")])
    rows = table_rows(capsys.readouterr().out)
    for what, names in NAMES.items():
        head = next(i for i, row in enumerate(rows) if row[0] == what)
        told = [row[0] for row in rows[head + 2 : head + 2 + 2 * len(names)]]
        assert sorted(told) == sorted([*names, *names])
    text = "".join(ElementTree.parse(figure).getroot().itertext())
    assert all(name in text for names in NAMES.values() for name in names)


@pytest.fixture
def warm_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench's workers do not spend their time on imports: see tests/warm.py."""

    def started(command: list[str], *, env: dict[str, str], **options: Any) -> Any:
        _, _, *arguments = command
        if "serve" not in arguments:
            return subprocess.Popen(command, env=env, **options)
        serve = [sys.executable, "-m", "okl", *arguments[arguments.index("serve") :]]
        return warm(serve, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)

    monkeypatch.setattr("bench.http_client.subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": started}))


@pytest.mark.slow
@pytest.mark.redis
@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize(("what", "size"), [("sessions", 3), ("workers", 2)])
def test_the_service_is_measured(what: str, size: int) -> None:
    assert all(0.0 < one.values[0] < math.inf for one in of_service(what, [size], 100))
