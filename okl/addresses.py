"""Where a service is and what it is shown: urls and keys are looked at before anything is sent."""

from __future__ import annotations

import os
from ipaddress import ip_address

import httpx

from okl.errors import ConfigurationError


def checked_url(url: str) -> str:
    """The url. Raises ConfigurationError for what is none of http or https: nobody would ever answer there."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise ConfigurationError(f"{url!r} is no url of a service: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigurationError(
            f"The url of a service is like http://127.0.0.1:8000 or https://okl.example, not {url!r}."
        )
    return url


def is_this_machine(url: str) -> bool:
    """Does it lead to the machine itself, whatever is before the network?"""
    host = httpx.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def headers_of(key: str | None) -> dict[str, str]:
    """Those of each request. Raises ConfigurationError for a key that no header can hold, without saying it."""
    key = (os.environ.get("OKL_KEY") or "" if key is None else key).strip()
    if not key:
        return {}
    if not (key.isascii() and key.isprintable()):
        raise ConfigurationError("The key is none of a service: it has other characters than a key has.")
    return {"Authorization": f"Bearer {key}"}
