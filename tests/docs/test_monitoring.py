"""What docker/ brings for Prometheus and Grafana, and docs/metrics.md, name series that the service tells, and no others."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from prometheus_client import parser

from service.telemetry.families import STORE_FAMILIES, WORKER_FAMILIES, Family
from tests.docs.pages import ROOT, blocks, section, table_rows, text_of
from tests.service.api import serving

PROMETHEUS = ROOT / "docker" / "prometheus"
DASHBOARD = ROOT / "docker" / "grafana" / "dashboards" / "okl.json"
INTERVAL = re.compile(r'"[^"]*"')

RARE = {"okl_session_coverage"}
"""Of sessions with intervals."""


def names(family: Family) -> set[str]:
    suffixes = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}[family.type]
    return {family.name + suffix for suffix in suffixes}


FAMILIES = (*WORKER_FAMILIES, *STORE_FAMILIES)
DECLARED = {name for family in FAMILIES for name in names(family)}


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[frozenset[str]]]:
    """The samples of a service that has done some rounds, by name: their labels."""

    async def rounds() -> str:
        async with serving("sqlite://") as api:
            await api.create(alarm={"rate": None, "error_above": 0.5})
            await api.rounds([[0.0]] * 64, [0.0, 10.0] * 32)
            for _ in range(2):  # by the second round, the time of one is known
                await api.update(0.0, x=[0.0])
            await api.predict([0.0], id="waits")
            await api.http.get("/nowhere")
            await api.http.get("/sessions", headers={"host": "evil.example"})
            api.worker.counts.store_errors["ping"] = 1
            await api.worker.rounds.summaries.close()
            return (await api.http.get("/metrics")).text

    found: dict[str, set[frozenset[str]]] = {}
    for family in parser.text_string_to_metric_families(anyio.run(rounds)):
        for sample in family.samples:
            found.setdefault(sample.name, set()).add(frozenset(sample.labels))
    return found


def dashboard() -> dict[str, Any]:
    return json.loads(DASHBOARD.read_text())


def expressions() -> dict[str, str]:
    """Every PromQL expression, by where it stands."""
    found: dict[str, str] = {}
    rules = (PROMETHEUS / "alerts.yml").read_text()
    for rule in rules.split("- alert: ")[1:]:
        expr = re.search(r"expr: (>-\n)?(.*?)\n        (?:for|labels):", rule, re.DOTALL)
        assert expr, rule
        found[rule.split("\n", 1)[0]] = expr[2]
    told = dashboard()
    for panel in told["panels"]:
        for target in panel.get("targets", ()):
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    found |= {one["name"]: one["definition"] for one in told["templating"]["list"]}
    found |= {one["name"]: one["expr"] for one in told["annotations"]["list"]}
    return found


def test_every_declared_series_is_told_and_no_other(exposed: dict[str, set[frozenset[str]]]) -> None:
    assert set(exposed) | RARE == DECLARED
    for family in FAMILIES:
        for name in names(family) - RARE:
            extra = {"le"} if name.endswith("_bucket") else set()
            assert exposed[name] == {frozenset({*family.labels, *extra})}, name


@pytest.mark.parametrize("where", expressions())
def test_expressions_name_series_and_labels_that_exist(where: str, exposed: dict[str, set[frozenset[str]]]) -> None:
    expression = expressions()[where]
    named = set(re.findall(r"\bokl_\w+", expression))
    assert named
    assert named <= set(exposed) | RARE
    for name, matchers in re.findall(r"\b(okl_\w+)\{([^}]*)\}", expression):
        labels = {part.split("=")[0].strip("!~ ") for part in INTERVAL.sub("", matchers).split(",")}
        assert labels <= {label for family in FAMILIES if name in names(family) for label in (*family.labels, "le")}


def test_a_worker_down_is_noticed_by_what_prometheus_adds() -> None:
    assert 'up{job="okl"}' in expressions()["OklWorkerDown"]
    assert "job_name: okl" in (PROMETHEUS / "prometheus.yml").read_text()


def test_with_a_key_prometheus_asks_every_worker_too() -> None:
    """By one target that is a name it would ask now this one, now that one."""
    ((_, shown),) = blocks(ROOT / "docs" / "keys.md", "yaml")
    told = [yaml.safe_load(text)["scrape_configs"] for text in (shown, (PROMETHEUS / "prometheus.yml").read_text())]
    asked = [[(one["job_name"], one["dns_sd_configs"][0]["names"]) for one in configs] for configs in told]
    assert asked[0] == asked[1] == [("okl", ["okl"])]


def test_every_panel_has_its_own_place() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        own = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not own & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= own
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)


def test_the_page_has_every_series() -> None:
    rows = [
        row
        for heading in ("## Of the workers", "## Of the sessions")
        for row in table_rows(section("metrics.md", heading))
        if row[0] != "series"
    ]
    told = {row[0].strip("`"): (row[1], row[2]) for row in rows}
    expected = {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            ", ".join(f"`{label}`" for label in family.labels) or "none",
        )
        for family in FAMILIES
    }
    assert told == expected
    assert all(len(row) == 4 and row[3] for row in rows)


def test_the_page_has_every_alert() -> None:
    rules = re.findall(r"- alert: (\w+)", (PROMETHEUS / "alerts.yml").read_text())
    assert re.findall(r"^\| `(Okl\w+)`", text_of("metrics.md"), flags=re.MULTILINE) == rules
    tested = set(re.findall(r"alertname: (\w+)", (PROMETHEUS / "alerts.test.yml").read_text()))
    assert tested == set(rules)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on the PATH")
@pytest.mark.parametrize(
    "command",
    [
        ("check", "config", PROMETHEUS / "prometheus.yml"),
        ("check", "rules", PROMETHEUS / "alerts.yml"),
        ("test", "rules", PROMETHEUS / "alerts.test.yml"),
    ],
    ids=lambda command: f"{command[0]} {command[1]}",
)
def test_promtool_is_content(command: tuple[str, str, Path]) -> None:
    ran = subprocess.run(["promtool", *map(str, command)], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
