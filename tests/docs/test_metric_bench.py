"""The bench of the packings on short streams: its tables and figures, what it measures, and that it fails where it should."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from bench.papers import metric, metric_study
from bench.papers.metric_figures import LEARNED, REGRETS, SHOWN, SPECTRA
from bench.papers.metric_runs import FREQUENCY, DirectionalStream, directional_stream
from bench.papers.metric_sets import CONTESTANTS, LAGS, Contestant, RealSet, forecasts, measure, read
from bench.papers.metric_study import BARS, PUBLISHED, REFEED, RESTART, Bar, Result, broken
from okl_core import create
from okl_core.packing.learned_metric import learned_metric
from tests.docs.test_kons_bench import FIGURES, LARGEST_BYTES, rows, texts


@pytest.fixture(scope="module")
def result() -> Result:
    return metric_study.measure(metric_study.tasks([(5, 1)], 126, 2)[0])


def small_set(path: Path, rows: int = 90) -> Path:
    rng = np.random.default_rng(0)
    X = 1e3 * rng.random((rows, 2))
    np.savez(path, X=X, y=400.0 + X[:, 0])
    return path


def test_it_prints_and_draws_every_learner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = [str(small_set(tmp_path / f"{name}.npz")) for name in ("bike", "cal_housing")]
    assert metric.main(["--quick", "--figures", str(tmp_path), "--data", *data]) == 0
    printed = capsys.readouterr().out
    headings = re.findall(r"^## (.*)$", printed, flags=re.MULTILINE)
    assert headings[0] == f"Streams: {metric.QUICK_ROUNDS} rounds, regret in the mean over 1"
    assert [heading.split(":")[0] for heading in headings[1:]] == [
        "What it gains",
        "What theorem 1 allows",
        "bike",
        f"bike, `lags` {LAGS['bike']}",
        "cal_housing",
    ]
    streams = rows(printed[: printed.index("## What it gains")])
    assert len(streams["d; directions"]) == 3
    for name in (*metric_study.PACKINGS, *metric_study.LINEAR, *metric_study.RIVALS):
        assert all(float(cell) for cell in streams[metric.named(name)])
    gains = rows(printed[printed.index("## What it gains") : printed.index("## What theorem 1 allows")])
    learned, identity = (float(streams[metric.named(name)][1]) for name in (REFEED, metric_study.EUCLIDEAN))
    (told, *_) = (cells for name, cells in gains.items() if name.endswith("`packing`, identity"))
    assert abs(float(told[1].rstrip("%")) - 100.0 * (1.0 - learned / identity)) < 2.0
    of_set = rows(printed[printed.index("## cal_housing") :])
    error, over = float(of_set["`pool`"][0]), float(of_set["`pool`"][4].rstrip("%"))
    assert abs(over - 100.0 * (error / float(of_set["`pros-n-kons`"][0]) - 1.0)) < 1.0
    assert {by.name for by in CONTESTANTS} <= set(of_set)
    # A linear function of one input.
    assert float(of_set["linear, `ons`"][0]) < 0.5 * float(of_set["mean"][0])
    assert {line.label for line in REGRETS} <= texts(tmp_path / "metric-regret.svg")
    assert {"30", "254"} <= texts(tmp_path / "metric-spectrum.svg")
    assert {line.label for line in SPECTRA} <= texts(tmp_path / "metric-rank.svg")


def test_it_fails_where_a_bound_does_not_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_study, "regret_bound", lambda eigenvalues, gradients, rounds, centres: 0.01)
    monkeypatch.setattr(metric, "QUICK_ROUNDS", 62)
    monkeypatch.setattr(metric, "draw", lambda *arguments: [])
    monkeypatch.setattr(metric_study, "RIVALS", {name: {"kind": "mean"} for name in metric_study.RIVALS})
    assert metric.main(["--quick", "--figures", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert re.search(r"d = 5, 1 direction, Euclidean, seed 0: regret [0-9.]+ > 0.0[0-9]", said)
    assert PUBLISHED in said
    assert f", {REFEED}," not in said


def test_it_fails_where_a_bar_does_not_hold(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken([result]) == []
    monkeypatch.setattr(metric_study, "BARS", {(5, 1): Bar(0.1, 100.0, cosine=0.0)})
    assert broken([result]) == []
    monkeypatch.setattr(metric_study, "ROUNDS", 126)
    assert [line.split(":")[0] for line in broken([result])] == [
        f"d = 5, 1 direction, {RESTART}",
        f"d = 5, 1 direction, {PUBLISHED}",
    ]
    monkeypatch.setattr(metric_study, "BARS", {(5, 1): Bar(100.0, 0.1, cosine=1.0)})
    assert [line.split(", ")[2].split(":")[0] for line in broken([result])] == [REFEED, RESTART, REFEED]


def test_every_bar_is_of_a_stream_that_is_played() -> None:
    assert set(BARS) | set(SHOWN) <= set(metric_study.STREAMS)


def slopes(stream: DirectionalStream) -> np.ndarray:
    """Gradients of f at the inputs, by central differences, shape (n, d)."""
    h = 1e-5
    return np.column_stack([(_f(stream, h * e) - _f(stream, -h * e)) / (2.0 * h) for e in np.eye(stream.X.shape[1])])


def _f(stream: DirectionalStream, shift: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.sin(FREQUENCY * (stream.X + shift) @ stream.U).mean(axis=1)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_what_is_true_of_a_stream(k: int) -> None:
    stream = directional_stream(4000, 4, k, seed=1)
    np.testing.assert_allclose(stream.f, _f(stream, np.zeros(4)))
    G = slopes(stream)
    np.testing.assert_allclose(metric_study.true_outer_product(stream), G.T @ G / len(G), atol=1e-8)
    V = np.linalg.qr(np.random.default_rng(2).standard_normal((4, 4)))[0]
    allowed = metric_study.largest_slopes(stream, V)
    steepest = np.abs(G @ V).max(axis=0)
    assert (steepest <= allowed + 1e-8).all()
    if k == 1:
        np.testing.assert_allclose(steepest, allowed, rtol=0.01)


def test_the_spectrum_is_that_of_the_metric_learned() -> None:
    stream = directional_stream(400, 3, 1, seed=0)
    config = {"truth_range": [-1.0, 2.0], "spread": False}
    learner = create({"kind": "metric-packing", "config": config}, 3)
    learner.run(stream.X[:254], stream.y[:254])
    G = metric_study.estimate(stream, 254)
    M = G / np.linalg.eigvalsh(G)[-1] + np.eye(3) / 254
    np.testing.assert_allclose(learned_metric(learner), M / np.linalg.eigvalsh(M)[-1], rtol=1e-9, atol=1e-12)


def test_regret_is_that_against_the_function(result: Result) -> None:
    stream, played = result.task.streams[1], result.runs["pool"][1]
    values, _ = forecasts(metric_study.RIVALS["pool"], stream.X, stream.y)
    expected = ((values - stream.y) ** 2).sum() - ((stream.f - stream.y) ** 2).sum()
    assert played.regret[-1] == pytest.approx(expected)
    mean = 0.5 * (result.runs["pool"][0].regret + played.regret)
    np.testing.assert_allclose(result.regret("pool"), mean)


def test_forecasts_are_in_the_units_of_the_truths() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.uniform(5.0, 7.0, (80, 2)), rng.uniform(-30.0, 90.0, 80)
    values, _ = forecasts({"kind": "mean"}, X, y)
    np.testing.assert_allclose(values[1:], np.cumsum(y)[:-1] / np.arange(1, 80))
    # A packing in units of its own, with inputs that a user scaled.
    own = create({"kind": "packing", "config": {"truth_range": [float(y.min()), float(y.max())]}}, 2)
    scaled = (2.0 * (X - X.min(axis=0)) / np.ptp(X, axis=0) - 1.0) / np.sqrt(2.0)
    np.testing.assert_allclose(forecasts({"kind": "packing"}, X, y)[0], own.run(scaled, y).values)


def test_a_learner_is_tuned_in_hindsight(tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).random((2, 60, 1))
    data = RealSet("noise", X, y[:, 0], 0)
    alphas = [1e-3, 1e3]
    by = Contestant("ons", "ons", {"step": "adaptive"}, [{"regularization": alpha} for alpha in alphas])
    (entry,) = measure(data, [by])
    found = []
    for alpha in alphas:
        values, _ = forecasts({"kind": "ons", "config": {"step": "adaptive", "regularization": alpha}}, X, y[:, 0])
        found.append(np.sqrt(np.mean((values - y[:, 0]) ** 2)))
    assert entry.tuned.rmse == pytest.approx(min(*found, entry.score.rmse))
    assert entry.tuned.rmse < entry.score.rmse


def test_rows_sorted_by_place_are_mixed(tmp_path: Path) -> None:
    (mixed,) = read(small_set(tmp_path / "cal_housing.npz"))
    (kept,) = read(small_set(tmp_path / "ccpp.npz"), 50)
    assert len(kept.y) == 50
    assert not np.array_equal(mixed.y[:50], kept.y)
    assert set(kept.y) <= set(mixed.y)
    np.testing.assert_array_equal(mixed.y, 400.0 + mixed.X[:, 0])


def test_the_figures_of_the_documentation_are_small_and_complete() -> None:
    assert len(SHOWN) == len(LEARNED)
    titles = {f"d = {d}, {k} direction{'s' if k > 1 else ''}" for d, k in SHOWN}
    for name, expected in (
        ("regret", titles | {line.label for line in REGRETS}),
        ("spectrum", titles | {"126", "1022", "8190"}),
        ("rank", titles | {line.label for line in SPECTRA}),
    ):
        figure = FIGURES / f"metric-{name}.svg"
        assert figure.stat().st_size < LARGEST_BYTES
        assert expected <= texts(figure)
