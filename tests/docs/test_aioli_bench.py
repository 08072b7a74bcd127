"""The bench of AIOLI on tiny streams: its tables, its figures, and that it fails when a bound or a bar does not hold."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from bench.papers import aioli, aioli_budget, aioli_hard, aioli_real
from bench.papers.aioli_figures import CALIBRATED, FORECASTS, REGRETS, SIZES
from bench.papers.aioli_hard import AIOLIS, FORECAST_INPUTS, FTRLS, Hard
from bench.papers.aioli_real import CONTESTANTS, Best, Contestant, Played, Score, Scores, best_weights
from okl_core import Linear, diagnostics
from okl_core.types import F64
from tests.docs.test_kons_bench import FIGURES, rows, texts

LARGEST_BYTES = 90_000


def labels(rng: np.random.Generator, X: F64, theta: F64) -> F64:
    return np.where(rng.random(len(X)) < expit(X @ theta), 1.0, -1.0)


def test_it_prints_and_draws_every_learner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((40, 3))
    y = labels(rng, X, np.array([4.0, -4.0, 0.0]))
    for name in ("elec2", "other"):
        np.savez(tmp_path / f"{name}.npz", X=1e3 * X, y=y.astype(np.int8))
    files = [str(tmp_path / f"{name}.npz") for name in ("elec2", "other")]
    folder = tmp_path / "figures"
    assert aioli.main(["--quick", "--figures", str(folder), "--data", *files]) == 0
    said = capsys.readouterr()
    assert "other: 3 x 40 rounds" in said.err
    assert "elec2: 1 x 40 rounds" in said.err
    has_river = importlib.util.find_spec("river") is not None
    assert ("river is not installed" in said.err) is not has_river
    found = rows(said.out)
    assert {by.name for by in CONTESTANTS if by.kind != "river" or has_river} <= set(found)
    assert {line.name for line in (*REGRETS, *SIZES)} <= set(found)
    # With a learner for drifting sets alone, and with those of the beginning alone.
    assert found["nystrom-aioli, lags, half-life"][0] == found["nystrom-aioli, lags, half-life"][2] == "-"
    assert "kernel-aioli" not in rows(said.out[said.out.index("| log-loss | ") : said.out.index("| mistakes, % | ")])
    assert "| log-loss of the first 3,000 rounds | magic | elec2 | other |" in said.out
    for name, lines in {"forecast": FORECASTS, "regret": REGRETS, "budget": SIZES}.items():
        assert {line.label for line in lines} <= texts(folder / f"aioli-{name}.svg")
    titles = texts(folder / "aioli-calibration.svg")
    for line in CALIBRATED:
        assert any(title.startswith(line.label) for title in titles) or not has_river


def test_the_figures_of_the_documentation_are_small_and_complete() -> None:
    for name, said in {"forecast": FORECASTS, "regret": REGRETS, "budget": SIZES}.items():
        figure = FIGURES / f"aioli-{name}.svg"
        assert figure.stat().st_size < LARGEST_BYTES
        assert {line.label for line in said} <= texts(figure)
    assert (FIGURES / "aioli-calibration.svg").stat().st_size < LARGEST_BYTES


def test_it_fails_where_a_bound_does_not_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (aioli, aioli_hard):
        monkeypatch.setattr(module, "theorem_1", lambda *arguments: -1e3)
    monkeypatch.setattr(aioli_budget, "B", 1e-2)
    monkeypatch.setattr(aioli, "draw", lambda *arguments: [])
    assert aioli.main(["--quick", "--figures", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert re.search(r"^AIOLI, λ = 1/B², n = 50, sign -1, run 1: regret [-.\d]+ > -1000.0$", said, re.MULTILINE)
    assert re.search(r"^magic, aioli: regret [.\d]+ > -1000.0$", said, re.MULTILINE)
    assert not re.search(r"^(FTRL|ONS|OGD|Foster)", said, re.MULTILINE)


def scored(**numbers: float) -> Score:
    usual = Scores(0.3, 10.0, 1.0, 0.3, 5.0)
    return Score(usual._replace(**numbers), [])


def hard(regrets: list[float]) -> Hard:
    return Hard(np.array(regrets)[:, None, None])


def test_it_fails_where_a_bar_is_crossed() -> None:
    sizes = aioli_hard.SIZES
    regrets = {name: hard([24.0] * len(sizes)) for name in AIOLIS} | {
        name: hard([n**0.36 for n in sizes]) for name in FTRLS
    }
    good: dict[str, dict[str, Score]] = {
        "magic": {name: scored(log_loss=0.4) for name in aioli.BEATEN} | {"nystrom-aioli": scored(mistakes=14.3)},
        "a9a": {"aioli": scored(mistakes=15.4)},
    }
    assert aioli.crossed(regrets, good) == []
    worse = regrets | {AIOLIS[1]: hard([25.0] * len(sizes)), FTRLS[0]: hard([n**0.3 for n in sizes])}
    assert [line.split(":")[0] for line in aioli.crossed(worse, good)] == [AIOLIS[1], FTRLS[0]]
    # One whose regret is not always positive does not grow like a power either.
    worse = regrets | {FTRLS[1]: hard([-1.0, *(float(n) for n in sizes[1:])])}
    assert [line.split(":")[0] for line in aioli.crossed(worse, good)] == [FTRLS[1]]
    for worse_scores in (scored(mistakes=14.4), scored(calibration=2.0), scored(log_loss=0.4)):
        bad = good | {"magic": good["magic"] | {"nystrom-aioli": worse_scores}}
        assert len(aioli.crossed(regrets, bad)) == (1 if worse_scores.scores.log_loss < 0.4 else len(aioli.BEATEN))
    bad = good | {"a9a": {"aioli": scored(mistakes=15.5)}}
    assert aioli.crossed(regrets, bad) == ["a9a: 15.5% mistakes > 15.4%"]


def test_the_worse_sign_counts() -> None:
    regrets = Hard(np.array([[[1.0, 3.0], [4.0, np.nan]], [[9.0, 9.0], [0.0, 0.0]]]))
    np.testing.assert_allclose(regrets.worse, [4.0, 9.0])
    assert regrets.largest == 9.0
    assert regrets.slope([10, 100]) == pytest.approx(np.log10(9.0 / 4.0))


def test_forecasts_of_aioli_bend_and_those_of_a_leader_do_not() -> None:
    for told in aioli_hard.forecasts():
        ratios = {name: values[-1] / values[60] for name, values in told.values.items()}
        assert FORECAST_INPUTS[60] == pytest.approx(0.5)
        assert ratios["FTRL"] == pytest.approx(2.0)
        assert ratios["AIOLI"] < 1.6
        np.testing.assert_allclose(told.values["AIOLI"], -told.values["AIOLI"][::-1], atol=1e-9)


@pytest.mark.parametrize("B", [0.3, 2.0, 500.0])
def test_the_best_weights_in_a_ball(B: float) -> None:
    rng = np.random.default_rng(0)
    Phi = rng.standard_normal((60, 4))
    y = labels(rng, Phi, np.array([2.0, -1.0, 0.0, 0.5]))
    found: Best = best_weights(Phi, y, B)
    expected = diagnostics.best_in_hindsight(Linear(), Phi, y, "logistic", radius=B)
    assert np.linalg.norm(found.theta) <= B * (1.0 + 1e-12)
    assert found.loss == pytest.approx(expected.loss, abs=1e-6)
    assert -1e-9 <= found.gap <= 1e-4


def test_no_weights_in_a_ball_of_labels_that_are_all_the_same_beat_its_border() -> None:
    found = best_weights(np.ones((10, 1)), np.ones(10), 3.0)
    assert found.loss == pytest.approx(10.0 * np.log1p(np.exp(-3.0)))


def test_scores_are_those_of_their_definitions() -> None:
    rng = np.random.default_rng(1)
    p, y = rng.random(500), np.where(rng.random(500) < 0.5, 1.0, -1.0)
    direct = 0.0
    for k in range(10):
        inside = (p >= k / 10) & (p < (k + 1) / 10)
        direct += inside.mean() * abs(p[inside].mean() - (y[inside] > 0.0).mean())
    assert aioli_real.calibration_error(p, y) == pytest.approx(direct)
    # A tenth whose rounds are all sure is a tenth like others.
    assert aioli_real.calibration_error(np.array([1.0, 1.0]), np.array([1.0, -1.0])) == 0.5


def test_a_pass_is_measured_from_its_forecasts(monkeypatch: pytest.MonkeyPatch) -> None:
    values, y = np.array([2.0, -1.0, 0.0, 3.0]), np.array([1.0, 1.0, -1.0, 1.0])
    monkeypatch.setattr(aioli_real, "play", lambda by, data, seed: Played(values + seed, y, 4e-6, {}))
    data = aioli_real.Source("made", np.zeros((4, 1)), y, [np.arange(4)] * 2)
    scores = aioli_real.score(Contestant("any", "aioli"), data).scores
    losses = [np.mean(np.log1p(np.exp(-y * (values + seed)))) for seed in (0, 1)]
    assert scores.log_loss == pytest.approx(np.mean(losses))
    assert scores.mistakes == pytest.approx(100.0 * np.mean([0.5, 0.25]))
    assert scores.round_us == pytest.approx(1.0)
    short = aioli_real.score(Contestant("any", "aioli", is_short=True), data).scores
    assert np.isnan(short.log_loss)
    assert short.beginning == pytest.approx(np.mean(losses))


def test_who_plays_what() -> None:
    X, y = np.zeros((70_000, 40)), np.ones(70_000)
    drifting, other = aioli_real.source("elec2", X, y), aioli_real.source("ijcnn1", X, y)
    assert [order.tolist() == list(range(70_000)) for order in (*drifting.orders, *other.orders)] == [True, False]
    assert len(aioli_real.source("w8a", X, y, 20_000).orders) == 3
    for by in CONTESTANTS:
        if by.kind != "river":
            assert aioli_real.can_play(by, drifting) is (by.inputs is None)
            assert aioli_real.can_play(by, other) is (by.inputs is None and not by.is_for_drift)


def test_a_form_is_enough_from_where_it_stays_near() -> None:
    def found(name: str, size: int, loss: float, **more: Any) -> aioli_budget.Found:
        form = aioli_budget.Form(name, "kernel-aioli" if name == aioli_budget.EXACT else "nystrom-aioli", {})
        return aioli_budget.Found(form, size, loss, 1.0, more.get("bound", 0.0))

    task = aioli_budget.tasks(40)[0]
    best = diagnostics.best_in_hindsight(task.kernel, task.X, task.y, "logistic", radius=aioli_budget.B)
    exact = found(aioli_budget.EXACT, 40, 100.0, bound=200.0)
    losses = {"a": (100.5, 102.0, 100.9, 99.0), "b": (101.0, 101.1), "c": (100.0,)}
    listed = [found(name, 10 * (i + 1), loss) for name, many in losses.items() for i, loss in enumerate(many)]
    study = aioli_budget.Study(task, best, [exact, *listed])
    sizes = {name: None if (smallest := study.enough(name)) is None else smallest.size for name in losses}
    assert sizes == {"a": 30, "b": None, "c": 10}
    assert study.broken() == []
    exact = found(aioli_budget.EXACT, 40, 100.0, bound=100.0 - best.loss - (best.norm / aioli_budget.B) ** 2 - 0.1)
    assert len(aioli_budget.Study(task, best, [exact]).broken()) == 1
