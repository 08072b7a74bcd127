"""Every knob of the service. Read from the environment (prefix OKL_) and from a TOML file; the environment wins."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from service.errors import ConfigurationError

CONFIG_FILE_VARIABLE = "OKL_CONFIG_FILE"


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="OKL_", frozen=True, extra="forbid")

    store: str = Field(
        default="sqlite:///data/okl.sqlite3",
        description="Where sessions live: sqlite:///file, redis://host:port/db, redis+sentinel://..., redis+cluster://...",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Least level logged.")
    log_format: Literal["text", "json"] = Field(default="text", description="One line of text or of JSON per record.")
    shutdown_grace_s: int = Field(
        default=10, ge=0, description="Seconds that open requests get when the process stops."
    )

    max_sessions: int = Field(default=10_000, ge=1, description="Sessions in the store; a further one is refused.")
    max_dim: int = Field(default=10_000, ge=1, description="Inputs of a session, categories counted one each.")
    max_body_bytes: int = Field(default=8 << 20, ge=1024, description="Size of a request body, in bytes.")
    max_batch: int = Field(default=10_000, ge=1, description="Rounds in one request.")
    max_waiting: int = Field(default=100_000, ge=1, description="Predictions of a session that wait for their truth.")
    waiting_expires_s: float = Field(
        default=14 * 86_400.0,
        gt=0.0,
        description="Seconds that a prediction waits; a session may ask for less or more.",
    )
    session_bytes: int = Field(
        default=256 << 20, ge=4096, description="Memory of one learner; updates past it are refused."
    )
    resident_bytes: int = Field(
        default=1 << 30, ge=4096, description="Memory of the learners kept by one worker; the least recently used go."
    )
    snapshot_min_bytes: int = Field(default=16 << 10, ge=0, description="No snapshot before the journal has this size.")
    snapshot_replay_s: float = Field(
        default=5.0, gt=0.0, description="A snapshot is due when replaying the journal would take this many seconds."
    )
    commit_patience_s: float = Field(
        default=10.0,
        gt=0.0,
        description="Seconds that a request tries again while other workers commit to its session.",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments first, then the environment, then the TOML file that OKL_CONFIG_FILE names (okl.toml if it is there)."""
        named = os.environ.get(CONFIG_FILE_VARIABLE)
        if named is not None and not Path(named).is_file():
            raise ConfigurationError(f"{CONFIG_FILE_VARIABLE} names {named}, which is no file.")
        file = TomlConfigSettingsSource(settings_cls, toml_file=named or "okl.toml")
        return init_settings, env_settings, file
