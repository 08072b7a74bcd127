"""Commands whose invalid options are reported in the project's words instead of pydantic's."""

from __future__ import annotations

from typing import Any, final

import typer
from typer.core import TyperGroup


@final
class PlainGroup(TyperGroup):
    """The group of all commands; `typer.Typer` takes it as `cls`."""

    def invoke(self, ctx: Any) -> Any:  # typer's class of it is private
        """Run the command. Raises BadParameter with a plain message."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            _reword(error)
            raise


def _reword(error: typer.BadParameter) -> None:
    # Deferred, since few commands are given invalid options.
    from pydantic import ValidationError

    from okl_core.contract.wrong_fields import in_words

    if isinstance(error.__cause__, ValidationError):
        error.message = in_words(error.__cause__.errors()[0])
