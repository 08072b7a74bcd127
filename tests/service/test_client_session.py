"""A session as an object: typed answers, ids that are made and kept, requests that are sent again."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import polars as pl
import pytest

import okl
from okl import errors
from okl.client import Client
from okl.session import Session
from okl.talks import Call
from tests.warm import warm


class Lossy(Client):
    """Every second answer is lost on the way."""

    count = 0

    def send(self, call: Call) -> Any:
        found = super().send(call)
        self.count += 1
        if self.count % 2:
            raise errors.Unreachable("The answer was lost.")
        return found


@pytest.fixture
def clicks(client: Client) -> Session:
    return client.session("clicks", labels=["no", "yes"])


def test_a_round(clicks: Session) -> None:
    prediction = clicks.predict({"page": "home", "seconds": 4.2})
    assert (prediction.session, prediction.t, prediction.label) == ("clicks", 0, "no")
    assert prediction.probability == pytest.approx(0.5)
    learned = clicks.update(prediction, "yes")
    assert (learned.id, learned.t, learned.mistake, learned.duplicate) == (prediction.id, 1, True, False)
    assert clicks.update(prediction.id or "", "yes").duplicate
    assert clicks.learn({"page": "home"}, "no").t == 2
    assert clicks.describe()["t"] == 2


def test_a_prediction_that_does_not_wait_has_no_truth(clicks: Session) -> None:
    prediction = clicks.predict([1.0], wait=False)
    assert prediction.id is None
    with pytest.raises(ValueError, match="wait=False"):
        clicks.update(prediction, "yes")
    with pytest.raises(ValueError, match="wait=False"):
        clicks.step(prediction, "yes", [2.0])


def test_a_prediction_stands_for_its_id(client: Client, clicks: Session) -> None:
    first, second, third = (clicks.predict([float(n)]) for n in range(3))
    assert client.update("clicks", "yes", id=first)["id"] == first.id
    assert client.step("clicks", "no", id=second, next_x=[1.0], wait=False)["update"]["id"] == second.id
    client.cancel("clicks", third)
    assert client.waiting("clicks")["predictions"] == []
    client.predict_several(["clicks"], [1.0], id=(fourth := clicks.predict([1.0])))
    assert client.update_several({"clicks": "no"}, id=fourth)[0]["id"] == fourth.id
    silent = clicks.predict([1.0], wait=False)
    for call in (
        lambda: client.update("clicks", "yes", id=silent),
        lambda: client.cancel("clicks", silent),
        lambda: clicks.cancel(silent),
    ):
        with pytest.raises(ValueError, match="wait=False"):
            call()
    wrong: Any = {"id": object()}
    for call in (lambda: client.cancel("clicks", wrong), lambda: clicks.update(wrong, "yes")):
        with pytest.raises(errors.WrongType, match=r"^/id: must be a string or a Prediction, not dict"):
            call()
    with pytest.raises(errors.WrongType, match="no JSON form"):
        client.predict_many("clicks", [[1.0]], ids=[wrong])


def test_what_waits_and_what_was_last(clicks: Session) -> None:
    first, second = clicks.predict([1.0]), clicks.predict([2.0])
    assert [one["id"] for one in clicks.waiting(limit=1)["predictions"]] == [first.id]
    clicks.cancel(first)
    clicks.update(second, "yes")
    assert clicks.waiting()["predictions"] == []
    assert [one["id"] for one in clicks.last_rounds(5)] == [second.id]
    with pytest.raises(errors.PredictionNotFound):
        clicks.cancel("nobody")
    events = clicks.events()
    assert next(events)[1]["t"] == 1
    events.close()


def test_what_must_not_be_repeated_is_sent_once(url: str) -> None:
    lossy = Lossy(url)
    session = lossy.session("lossy", "mean")
    prediction = session.predict([1.0])
    for call in (lambda: session.cancel(prediction), session.delete):
        lossy.count = 0
        with pytest.raises(errors.Unreachable):
            call()
        assert lossy.count == 1
    lossy.close()


def test_the_session_comes_first(client: Client) -> None:
    wrong: Any = {"a": 1}
    match = "^/session: the session's name must be a string, not dict; it is the first argument"
    for call in (
        lambda: client.predict(wrong, "clicks"),
        lambda: client.stream(wrong),
        lambda: client.session(wrong).predict([1.0]),
    ):
        with pytest.raises(errors.InvalidName, match=match):
            call()
    with pytest.raises(errors.InvalidName, match="a name or id must be a string, not dict"):
        client.challenger("clicks", wrong)


def test_a_step_is_two(clicks: Session) -> None:
    learned, following = clicks.step(clicks.predict([1.0, 2.0]), "yes", [2.0, 3.0])
    assert (learned.t, following.t) == (1, 1)
    assert clicks.update(following, "no").t == 2


def test_it_is_there_already(client: Client, clicks: Session) -> None:
    clicks.learn([1.0], "yes")
    assert client.session("clicks", labels=["no", "yes"]).describe()["t"] == 1
    assert client.session("clicks").describe()["t"] == 1
    others = client.session("clicks", "mean", y_range=[0.0, 1.0]).describe()
    assert (others["labels"], others["kind"]) == (["no", "yes"], clicks.describe()["kind"])
    nobody = client.session("nobody")
    with pytest.raises(errors.SessionNotFound, match=r"In Python: client\.create\('nobody', \.\.\.\)"):
        nobody.predict([1.0])
    with pytest.raises(errors.SessionNotFound, match=r"In Python: client\.attach\('clicks', 'no', \.\.\.\)"):
        client.challenger("clicks", "no")
    with pytest.raises(errors.ServiceError, match="no-such-learner"):
        client.session("wrong", "no-such-learner")


def test_many_rounds_of_a_frame(client: Client) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((2300, 3))
    frame = pl.DataFrame(X, schema=["a", "b", "c"])
    played = client.session("prices", "ons", y_range=[0.0, 3.0]).play(frame, pl.Series(X.sum(axis=1)), progress=True)
    assert (played.t, played.rounds, played.mistakes) == (2300, 2300, None)
    assert list(played.columns()) == ["values"]
    assert np.abs(np.array(played.columns()["values"])[-500:] - X.sum(axis=1)[-500:]).mean() < 0.1
    assert len(client.session("prices").predict_many(frame[:7])) == 7
    with pytest.raises(ValueError, match="2 inputs and 1 truths"):
        client.session("prices").play([[1.0], [2.0]], [1.0])


def test_what_was_not_answered_is_sent_again_and_learned_once(url: str, client: Client) -> None:
    with Lossy(url) as lossy:
        session = lossy.session("lossy", {"kind": "mean"}, y_range=[0.0, 10.0])
        for t in range(1, 6):
            learned = session.update(session.predict([1.0]), 4.0)
            assert (learned.t, learned.duplicate) == (t, True)
        assert session.play([[1.0]] * 3, [4.0] * 3).t == 8
        assert session.learn([1.0], 4.0).t == 9
        # An answer of 1,000 forecasts is not remembered with them; the last one of 3 is.
        played = session.play([[1.0]] * 1003, [4.0] * 1003)
        values = played.columns()["values"]
        assert (list(values[:1000]), values[1000:]) == ([None] * 1000, pytest.approx([4.0] * 3))
    assert client.inspect("lossy")["t"] == 1012


def test_it_gives_up(client: Client) -> None:
    session = Client("http://127.0.0.1:9").session("nobody")
    session.again_for_s = 0.2
    with pytest.raises(errors.Unreachable):
        session.predict([1.0])


def test_a_service_of_ones_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "what? #1 of 100%41.sqlite3"
    for t in (1, 2):
        if t == 2:  # another one, which need not spend its time on imports
            monkeypatch.setattr(sys.modules[okl.local.__module__], "Popen", warm)
        with okl.local(kept) as client:
            session = client.session("kept", "mean")
            assert session.learn([1.0], 2.0).t == t
    assert kept.exists()
    with Client(client.url) as again:
        assert not again.is_ready()


def test_a_path_that_is_no_text_is_refused(tmp_path: Any) -> None:
    service = okl.local(tmp_path / os.fsdecode(b"\xff.sqlite3"))
    with pytest.raises(errors.ConfigurationError, match=r"\\udcff.sqlite3' is not valid Unicode"), service:
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_names_that_users_import() -> None:
    for name in okl.__all__:
        assert getattr(okl, name).__doc__
    assert set(okl.__all__) <= set(dir(okl))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = okl.nothing


WITHOUT_EXTRAS = """
import inspect, pydoc, sys

sys.modules |= {"river": None, "sklearn": None}
import okl

assert not hasattr(okl, "river")
assert {"Client", "errors"} <= dict(inspect.getmembers(okl)).keys()
assert "class Client" in pydoc.plain(pydoc.render_doc(okl))
for statement in ("import okl.river", "from okl import river", "import okl.sklearn", "from okl import sklearn", "okl.river"):
    try:
        exec(statement)
    except (ImportError, AttributeError) as error:
        print(type(error).__name__, error)
"""


def test_a_module_whose_extra_is_missing_can_be_looked_for() -> None:
    told = subprocess.check_output([sys.executable, "-c", WITHOUT_EXTRAS], text=True).splitlines()
    missing = [f"ImportError the estimators of {name}" for name in ("River", "River", "scikit-learn", "scikit-learn")]
    for line, start in zip(told, [*missing, "AttributeError the estimators of River"], strict=True):
        assert line.startswith(f"{start} need it: pip install 'okl[")


@pytest.mark.parametrize("name", ["errors.ServiceError", "river.Classifier", "sklearn.Classifier"])
def test_modules_are_imported_on_first_use(name: str) -> None:
    program = f"import sys, okl; assert 'httpx' not in sys.modules; print(*dir(okl), okl.{name}.__module__)"
    *names, module = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert name.partition(".")[0] in names
    assert module == f"okl.{name.partition('.')[0]}"
