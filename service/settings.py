"""The service's settings, read from the environment (prefix OKL_), files of secrets and a TOML file; the first wins."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from okl.errors import ConfigurationError
from okl.masking import shown_url

from .blas_kernels import check_choice
from .store.base import Limits

if TYPE_CHECKING:
    from .session.limits import SessionLimits

CONFIG_FILE_VARIABLE = "OKL_CONFIG_FILE"
SECRETS_VARIABLE = "OKL_SECRETS_DIR"

Count = Annotated[int, Field(le=2**53)]
"""Stores and metrics hold numbers as doubles, in which larger integers are not exact."""


def _listed(value: object) -> object:
    """A list from an environment variable is comma-separated text."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _web_address(url: str) -> str:
    """Raises ValueError without quoting the URL, since it may hold a password."""
    try:
        parts = urlsplit(url)
        is_web = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_web = False
    if url and not (is_web and url.isascii() and url.isprintable() and " " not in url):
        raise ValueError("must be a URL that begins with http:// or https://")
    return url


def _listening_address(host: str) -> str:
    """Raises ValueError for an empty host, which would be every address."""
    if not host:
        raise ValueError("must be an address to listen on, such as 127.0.0.1, or 0.0.0.0 for all")
    return host


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="OKL_", frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False
    )

    store: str = Field(
        default="sqlite:///data/okl.sqlite3",
        description="Where sessions live: sqlite:///file, redis://host:port/db, redis+sentinel://..., redis+cluster://...",
        repr=False,  # it may hold a password
    )
    store_patience_s: float = Field(
        default=30.0,
        ge=0.0,
        description="Seconds that `okl serve` waits at its start for a store that does not answer.",
    )
    host: Annotated[str, AfterValidator(_listening_address)] = Field(
        default="127.0.0.1", description="Address to listen on."
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is logged."
    )
    log_format: Literal["text", "json"] = Field(default="text", description="One line of text or of JSON per record.")
    log_requests: bool = Field(default=False, description="Log one line per request, at level info.")
    metrics_sessions: int = Field(
        default=200, ge=0, le=10_000, description="Sessions with their own metrics: those with the latest rounds."
    )
    metrics_dir: str = Field(
        default="",
        description="Folder through which the workers of one machine share their metrics; `--workers` creates one.",
    )
    webhook: Annotated[str, AfterValidator(_web_address)] = Field(
        default="",
        description="URL to which alarms are posted, http:// or https://.",
        repr=False,  # it may hold a password
    )
    webhook_secret: SecretStr = Field(default=SecretStr(""), description="Key with which posted alarms are signed.")
    webhook_timeout_s: float = Field(
        default=5.0, gt=0.0, le=60.0, description="Seconds that the receiver has to accept an alarm."
    )
    blas_kernels: Annotated[str, AfterValidator(check_choice)] = Field(
        default="auto",
        description="Kernels of the BLAS: auto (the same on almost every machine), native, or a name such as Haswell.",
    )
    shutdown_grace_s: int = Field(
        default=10, ge=0, le=86_400, description="Seconds that open requests get when the process stops."
    )

    allowed_hosts: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)] = Field(
        default=(),
        description="Host names that the service answers to, comma-separated, *.example.com for all below; * for every name. "
        "IP addresses, names without a dot and names that only exist in a private network need no entry.",
    )
    allowed_origins: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)] = Field(
        default=(), description="Origins whose web pages may use the service, such as https://example.com; * for all."
    )
    require_keys: bool = Field(
        default=False, description="Require a key from the first request on, even if none has been created yet."
    )
    allow_anonymous: bool = Field(
        default=False,
        description="Allow requests without a key on an address that others reach, as long as no key was ever created.",
    )
    audit_file: str = Field(
        default="", description="File of the audit log, in JSON lines; it and the 4 files before it are kept."
    )
    audit_file_bytes: Count = Field(
        default=10 << 20, ge=4096, description="Size at which the audit log is rotated, in bytes."
    )
    tls_cert: str = Field(default="", description="File of the certificate, PEM, followed by its authorities'.")
    tls_key: str = Field(default="", description="File of the certificate's private key, PEM.")
    tls_ca: str = Field(
        default="", description="File of authorities, PEM: clients must have a certificate that one of them signed."
    )
    max_connections: Count = Field(default=1_000, ge=1, description="Open connections of a worker.")
    max_requests: Count = Field(default=500, ge=1, description="Requests in flight in a worker.")
    max_head_bytes: Count = Field(
        default=32 << 10, ge=4096, description="Size of a request's head: its line and headers, in bytes."
    )
    head_timeout_s: float = Field(default=10.0, gt=0.0, description="Seconds that the head of a request may take.")
    body_timeout_s: float = Field(
        default=30.0, gt=0.0, description="Seconds that a request's body may take; for a body of lines, each piece."
    )

    max_sessions: Count = Field(default=10_000, ge=1, description="Sessions in the store; more are refused.")
    max_dim: Count = Field(default=10_000, ge=1, description="Inputs of a session; each category counts as one.")
    max_body_bytes: Count = Field(default=8 << 20, ge=1024, description="Size of a request body, in bytes.")
    max_row_bytes: Count = Field(
        default=1 << 20,
        ge=1024,
        description="Size of a request body without a batch of rounds, or of one row, in bytes.",
    )
    max_values: Count = Field(default=1_000_000, ge=1024, description="Values in one request body.")
    max_batch: Count = Field(default=10_000, ge=1, description="Rounds in one request.")
    max_together: Count = Field(default=64, ge=1, description="Sessions in one request.")
    max_streams: Count = Field(
        default=100, ge=1, description="Open streams of rounds in a worker, both sockets and bodies of lines."
    )
    max_watchers: Count = Field(default=100, ge=1, description="Open streams of events in a worker.")
    max_waiting: Count = Field(default=100_000, ge=1, description="Predictions of a session that wait for their truth.")
    waiting_expires_s: float = Field(
        default=14 * 86_400.0,
        gt=0.0,
        description="Seconds that a prediction waits for its truth; a session may set its own value.",
    )
    session_bytes: Count = Field(
        default=256 << 20, ge=4096, description="Memory of one learner, in bytes; updates beyond it are refused."
    )
    resident_bytes: Count = Field(
        default=768 << 20,
        ge=4096,
        description="Memory of the sessions that one worker keeps, in bytes; the least recently used are evicted.",
    )
    max_checkpoints: Count = Field(default=16, ge=0, description="Checkpoints of a session.")
    max_checkpoint_bytes: Count = Field(
        default=256 << 20, ge=4096, description="Total bytes of a session's checkpoints."
    )
    max_challengers: Count = Field(default=8, ge=0, description="Challengers of a session.")
    retain_entries: int = Field(
        default=256,
        ge=0,
        le=100_000_000,
        description="Journal entries of a session that are kept behind its snapshot: for workers and challengers that are "
        "behind, and for `okl backtest`.",
    )
    retain_bytes: Count = Field(default=256 << 10, ge=0, description="Bytes of these entries, at most.")
    snapshot_min_bytes: Count = Field(
        default=16 << 10, ge=0, description="No snapshot before the journal has this size."
    )
    snapshot_replay_s: float = Field(
        default=1.0, gt=0.0, description="A snapshot is due when replaying the journal would take this many seconds."
    )
    patience_s: float = Field(
        default=10.0,
        gt=0.0,
        description="Seconds that a request may take, its wait in the session's queue included, before it is refused.",
    )
    max_queue: Count = Field(default=1_000, ge=1, description="Requests that wait for one session; more are refused.")
    max_answer_bytes: Count = Field(
        default=8 << 20,
        ge=4096,
        description="Bytes of an answer: rounds or predictions that might take more are refused.",
    )
    max_waiting_bytes: Count = Field(
        default=64 << 20, ge=4096, description="Bytes of a session's predictions that wait for their truth."
    )
    remembered_s: float = Field(
        default=86_400.0,
        gt=0.0,
        description="Seconds that the id of an applied update is remembered, so that a duplicate is not learned again.",
    )
    remembered: Count = Field(
        default=100_000, ge=1, description="Remembered ids of a session; the oldest are forgotten first."
    )
    remembered_bytes: Count = Field(
        default=32 << 20, ge=4096, description="Bytes of their answers; the oldest are forgotten first."
    )

    @field_validator("*", mode="before")
    @classmethod
    def _without_line_end(cls, value: object) -> object:
        """A variable that was filled from a file often ends with its line end."""
        return value.strip() if isinstance(value, str) else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then the environment, then the folder OKL_SECRETS_DIR with one file per setting, such as okl_store, then
        the TOML file that OKL_CONFIG_FILE names (by default okl.toml, if it exists).
        """
        for variable in (CONFIG_FILE_VARIABLE, SECRETS_VARIABLE):
            if os.environ.get(variable) == "":
                raise ConfigurationError(f"{variable} is empty: give it a path, or unset it.")
        named = os.environ.get(CONFIG_FILE_VARIABLE)
        if named is not None and not Path(named).is_file():
            raise ConfigurationError(f"{CONFIG_FILE_VARIABLE} names {named}, which is not a file.")
        path = named or "okl.toml"
        try:
            file = TomlConfigSettingsSource(settings_cls, toml_file=path)
        except ValueError as error:
            raise ConfigurationError(f"{CONFIG_FILE_VARIABLE}: {path} is not TOML: {error}.") from error
        folder = os.environ.get(SECRETS_VARIABLE)
        if folder is None:
            return init_settings, env_settings, file
        # Without the secret okl_store the store would silently be a local file, unnoticed until sessions are missing.
        if not os.access(folder, os.R_OK | os.X_OK) or not Path(folder).is_dir():
            raise ConfigurationError(f"{SECRETS_VARIABLE} names {folder}, which is not a readable folder.")
        return init_settings, env_settings, SecretsSettingsSource(settings_cls, secrets_dir=folder), file


def setting_as_written(name: str) -> str:
    """A setting as it is called where it is set: `OKL_MAX_BATCH`, or `max_batch` in the TOML file."""
    folder = os.environ.get(SECRETS_VARIABLE)
    set_outside = {*os.environ, *(os.listdir(folder) if folder is not None else ())}
    variable = f"OKL_{name.upper()}"
    return variable if variable in {one.upper() for one in set_outside} else name


def limits_of(settings: Settings) -> Limits:
    """The limits on what a store keeps of one session."""
    return Limits(
        waiting=settings.max_waiting,
        tail=settings.retain_entries,
        tail_bytes=settings.retain_bytes,
        checkpoints=settings.max_checkpoints,
        checkpoint_bytes=settings.max_checkpoint_bytes,
        waiting_bytes=settings.max_waiting_bytes,
        remembered=settings.remembered,
        remembered_bytes=settings.remembered_bytes,
        remembered_s=settings.remembered_s,
    )


def session_limits_of(settings: Settings) -> SessionLimits:
    """The limits of one session."""
    # Deferred, because it imports the learners, which few commands need.
    from .session.limits import SessionLimits

    return SessionLimits(
        dim=settings.max_dim,
        bytes=settings.session_bytes,
        waiting_s=settings.waiting_expires_s,
        batch=settings.max_batch,
        answer_bytes=settings.max_answer_bytes,
    )


def without_password(url: str) -> str:
    """The store's URL, fit to be shown. A file's name may have any character."""
    return url.partition("?")[0] if url.startswith("sqlite://") else shown_url(url)
