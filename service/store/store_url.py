"""The parts of a store's url."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from okl.errors import ConfigurationError


def split_url(url: str) -> SplitResult:
    """Raises ConfigurationError, which never quotes the url: it may hold a password."""
    try:
        return urlsplit(url)
    except ValueError:
        raise ConfigurationError(
            "store url: malformed. Write special characters in names and passwords as %XX, an address of IPv6 as [::1]."
        ) from None
