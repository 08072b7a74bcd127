"""The end of a command: success, or one line on standard error and an exit code that says why."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from okl.errors import ConfigurationError, ServiceError, SessionNotFound, StoreTimeout, StoreUnavailable

from .. import import_phase
from ..escaping import escaped

REFUSED, WRONG_OPTION, TRY_LATER, INTERRUPTED = 1, 2, 75, 130


@contextmanager
def errors_in_a_line() -> Iterator[None]:
    """Report expected errors as one line, without a traceback. Signals are handled from here on, so import before."""
    import_phase.end()
    try:
        yield
    except ServiceError as error:
        fail(text_of(error), _exit_code(error))
    except ValueError as error:
        if (wrong := _wrong_settings(error)) is None:
            raise
        fail(wrong, WRONG_OPTION)
    except OSError as error:
        # An error of a named file or of the disk; a closed pipe or a bug is raised.
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise
        fail(f"{error.strerror}{'' if error.filename is None else f': {error.filename}'}", REFUSED)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _wrong_settings(error: ValueError) -> str | None:
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from okl_core.contract.wrong_fields import in_words

    from ..settings import setting_as_written

    if isinstance(error, SettingsError):
        # Only a file of secrets is read so late.
        return f"OKL_SECRETS_DIR: {error}: {error.__cause__}."
    if isinstance(error, ValidationError):
        wrong = (f"{setting_as_written(str(item['loc'][0]))}: {in_words(item)}" for item in error.errors())
        return f"Setting {'; '.join(wrong)}"
    return None


def text_of(error: ServiceError) -> str:
    """What a command prints of an error. A missing session's own text tells callers of the API how to create it."""
    if isinstance(error, SessionNotFound):
        return f"{error.title}: There is no session {error.extra.get('session')!r}; `okl sessions` lists those of a service."
    return f"{error.title}: {error.detail}"


def _exit_code(error: ServiceError) -> int:
    if isinstance(error, ConfigurationError):
        return WRONG_OPTION
    return TRY_LATER if isinstance(error, StoreUnavailable | StoreTimeout) else REFUSED


def fail(message: str, code: int) -> None:
    typer.echo(escaped(" ".join(message.split())), err=True)
    raise typer.Exit(code) from None
