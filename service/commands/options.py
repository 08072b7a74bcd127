"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

StoreOption = Annotated[str | None, typer.Option(help="Store url; default: OKL_STORE, or an embedded file.")]
