"""Options that several commands have, and checks of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from okl.errors import ConfigurationError

StoreOption = Annotated[str | None, typer.Option(help="Store url; default: OKL_STORE, or an embedded file.")]


def check_out(path: Path) -> None:
    """Raises ConfigurationError if the finished file would replace something else, such as /dev/null or a pipe."""
    if path.exists() and not path.is_file():
        raise ConfigurationError(f"--out: {path} is not a regular file, and would be replaced by one.")
