"""Options that several commands have, and checks of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from okl.errors import ConfigurationError

if TYPE_CHECKING:
    from ..settings import Settings

StoreOption = Annotated[str | None, typer.Option(help="Store url; default: OKL_STORE, or an embedded file.")]


def settings_with(**options: Any) -> Settings:
    """The settings, of which a command's options replace those that they give (not None)."""
    from ..settings import Settings

    return Settings(**{name: value for name, value in options.items() if value is not None})


def store_url(store: str | None) -> str:
    """The store that the option names, else the one of the settings."""
    return settings_with(store=store).store


def check_out(path: Path) -> None:
    """Raises ConfigurationError if the finished file would replace something else, such as a pipe or the link /dev/stdout."""
    if str(path) == "-":
        raise ConfigurationError("--out: - would be a file of that name, not the standard output; name a file.")
    if path.is_symlink():
        raise ConfigurationError(f"--out: {path} is a link, and would be replaced by a file; name the file itself.")
    if path.exists() and not path.is_file():
        raise ConfigurationError(f"--out: {path} is not a regular file, and would be replaced by one.")
