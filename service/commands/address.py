"""The url at which the commands find the service."""

from __future__ import annotations

from okl.errors import ConfigurationError


def service_url(url: str | None) -> str:
    """`url` if given, else the url of a service on this machine with these settings. Raises ConfigurationError."""
    if url is not None:
        return url
    from okl.client import local_url

    from ..settings import Settings

    settings = Settings()
    if settings.port == 0:
        raise ConfigurationError("OKL_PORT is 0, so the service chose a free port: give its url with --url.")
    return local_url(settings.host, settings.port, "https" if settings.tls_cert else "http")
