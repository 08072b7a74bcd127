"""Where settings come from, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from okl.errors import ConfigurationError
from okl_core.contract.wrong_fields import in_words
from service.settings import CONFIG_FILE_VARIABLE, SECRETS_VARIABLE, Settings, setting_as_written, without_password


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory, and no setting in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in (CONFIG_FILE_VARIABLE, SECRETS_VARIABLE, *(f"OKL_{field.upper()}" for field in Settings.model_fields)):
        monkeypatch.delenv(name, raising=False)


def test_every_default_is_documented_and_valid() -> None:
    settings = Settings()
    for name, field in Settings.model_fields.items():
        assert field.description, name
    assert Settings.model_validate(settings.model_dump()) == settings


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OKL_PORT", "1234")
    monkeypatch.setenv("OKL_LOG_FORMAT", "json")
    settings = Settings()
    assert (settings.port, settings.log_format, settings.host) == (1234, "json", "127.0.0.1")


def test_a_file_in_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "okl.toml").write_text('store = "sqlite://"\nmax_dim = 7\n')
    settings = Settings()
    assert (settings.store, settings.max_dim) == ("sqlite://", 7)


def test_a_file_that_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "okl.toml").write_text("max_dim = 7\n")
    (tmp_path / "other.toml").write_text("max_batch = 5\n")
    monkeypatch.setenv(CONFIG_FILE_VARIABLE, str(tmp_path / "other.toml"))
    settings = Settings()
    assert (settings.max_batch, settings.max_dim) == (5, 10_000)


def test_arguments_before_the_environment_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "okl.toml").write_text("max_dim = 1\nmax_batch = 1\nport = 1\n")
    monkeypatch.setenv("OKL_MAX_BATCH", "2")
    monkeypatch.setenv("OKL_PORT", "2")
    settings = Settings(port=3)
    assert (settings.max_dim, settings.max_batch, settings.port) == (1, 2, 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OKL_PORT", "70000"),
        ("OKL_PORT", "http"),
        ("OKL_HOST", ""),
        ("OKL_LOG_LEVEL", "loud"),
        ("OKL_MAX_DIM", "0"),
        # Longer than a thread can wait.
        ("OKL_SHUTDOWN_GRACE_S", str(10**10)),
        # Metrics, pages and Redis could not hold them.
        ("OKL_MAX_WAITING", str(10**400)),
        ("OKL_REMEMBERED", str(2**53 + 1)),
        ("OKL_WAITING_EXPIRES_S", "inf"),
        ("OKL_PATIENCE_S", "nan"),
        ("OKL_HEAD_TIMEOUT_S", "10s"),
        ("OKL_MAX_BATCH", ""),
    ],
)
def test_a_wrong_setting_is_told(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError) as caught:
        Settings()
    assert [error["loc"] for error in caught.value.errors()] == [(name.removeprefix("OKL_").lower(),)]


def test_a_variable_may_end_with_the_line_end_of_the_file_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"HOST": " ::1\n", "PORT": "1\n", "LOG_LEVEL": "error\r\n", "REQUIRE_KEYS": "true\n", "METRICS_DIR": " "}
    for name, value in (given | {"WEBHOOK": "https://okl.example\n", "WEBHOOK_SECRET": "hush\n"}).items():
        monkeypatch.setenv(f"OKL_{name}", value)
    found = Settings()
    assert (found.host, found.port, found.log_level, found.require_keys) == ("::1", 1, "error", True)
    assert (found.metrics_dir, found.webhook) == ("", "https://okl.example")
    assert found.webhook_secret.get_secret_value() == "hush"


def test_an_unknown_setting_of_the_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "okl.toml").write_text("max_bach = 5\n")
    with pytest.raises(ValidationError) as found:
        Settings()
    (error,) = found.value.errors()
    assert (error["loc"], in_words(error)) == (("max_bach",), "is unknown")


def test_a_setting_is_called_what_it_is_called_where_it_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert setting_as_written("max_batch") == "max_batch"
    monkeypatch.setenv(SECRETS_VARIABLE, str(tmp_path))
    (tmp_path / "okl_max_batch").write_text("0")
    assert setting_as_written("max_batch") == "OKL_MAX_BATCH"
    monkeypatch.setenv("okl_max_dim", "0")
    assert setting_as_written("max_dim") == "OKL_MAX_DIM"


def test_nobody_changes_a_setting() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1  # type: ignore[misc]


def test_the_store_has_a_password_and_nobody_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OKL_STORE", "redis://:hush@host:6379/0")
    monkeypatch.setenv("OKL_PORT", "hush")
    assert "hush" not in repr(Settings(port=1))
    with pytest.raises(ValidationError) as caught:
        Settings()
    assert "hush" not in str(caught.value)


SHOWN = {
    "sqlite:///data/a@b.sqlite3?timeout=5": "sqlite:///data/a@b.sqlite3",
    "sqlite://": "sqlite://",
    "redis://host:6379/0": "redis://host:6379/0",
    "redis://user:hush@host:6379/0": "redis://host:6379/0",
    "redis://host:6379/0?password=hush": "redis://host:6379/0",
    "redis+sentinel://:hush@a:1,b:2/main": "redis+sentinel://a:1,b:2/main",
    "redis+cluster://:hush@[::1]:5": "redis+cluster://[::1]:5",
    "redis://:hu/sh@host": "redis://...",
    "redis://:hu?sh@host": "redis://...",
    "redis://:hu#sh@host": "redis://...",
    "redis://host/0?password=hu@sh": "redis://...",
}


@pytest.mark.parametrize(("url", "shown"), SHOWN.items(), ids=SHOWN)
def test_a_store_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_kernels_are_named_as_openblas_names_them() -> None:
    assert Settings(blas_kernels="skylakex").blas_kernels == "SkylakeX"
    with pytest.raises(ValidationError, match="Haswell"):
        Settings(blas_kernels="haswel")


def test_files_of_secrets_after_the_environment_and_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (tmp_path / "okl.toml").write_text('store = "sqlite://"\nmax_dim = 1\n')
    (folder / "okl_store").write_text("redis://okl:hush@redis:6379/0\n")
    (folder / "okl_max_batch").write_text("2")
    monkeypatch.setenv("OKL_MAX_BATCH", "3")
    assert Settings().store == "sqlite://"
    monkeypatch.setenv(SECRETS_VARIABLE, str(folder))
    settings = Settings()
    assert (settings.store, settings.max_batch, settings.max_dim) == ("redis://okl:hush@redis:6379/0", 3, 1)


def test_secrets_that_are_named_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRETS_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(ConfigurationError, match="nowhere"):
        Settings()
