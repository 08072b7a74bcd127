"""The command `okl`, also as `python -m okl`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def service_part(name: str) -> Any:
    """A module of the service: an installed one is called `okl_service`, that of a checkout `service`."""
    package = "service" if find_spec("okl_service") is None else "okl_service"
    return import_module(f"{package}.{name}")


def main() -> None:
    """Hand over to the service."""
    service_part("start").main()


if __name__ == "__main__":
    main()
