"""The `okl` command, also available as `python -m okl`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def service_part(name: str) -> Any:
    """A module of the service package, which is called `okl_service` when installed and `service` in a checkout."""
    package = "service" if find_spec("okl_service") is None else "okl_service"
    return import_module(f"{package}.{name}")


def main() -> None:
    """Run the service's command line."""
    service_part("start").main()


if __name__ == "__main__":
    main()
