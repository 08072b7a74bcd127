"""The address of a service and the key for it, checked before anything is sent; mistakes in TLS that no retry mends."""

from __future__ import annotations

import os
import ssl
from ipaddress import ip_address
from typing import Final

import httpx

from okl.errors import ConfigurationError
from okl.masking import shown_url

TLS_MISTAKES: Final = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted here: name that of its authority in SSL_CERT_FILE",
    "WRONG_VERSION_NUMBER": "it does not speak TLS: try http:// instead of https://",
}
"""What to change, by OpenSSL's reason."""


def checked_url(url: str, what: str = "The url of a service") -> str:
    """The URL, unchanged. Raises ConfigurationError if it is not an http or https URL, which no retry would mend.

    The error never quotes the URL: it may hold a password.
    """
    try:
        parsed = httpx.URL(url)
        is_port = parsed.port is None or 0 < parsed.port < 1 << 16
        is_web = parsed.scheme in ("http", "https") and parsed.host and is_port
        # As the resolver will do: a part of a name has at most 63 bytes.
        parsed.raw_host.decode("ascii").encode("idna")
    except (httpx.InvalidURL, TypeError, UnicodeError):
        is_web = False
    if not is_web:
        raise ConfigurationError(f"{what} is like http://127.0.0.1:8000 or https://okl.example.")
    return url


def is_this_machine(url: str) -> bool:
    """Whether the URL names the loopback interface, which no proxy may intercept."""
    host = httpx.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def tls_mistake(url: str, error: BaseException) -> ConfigurationError | None:
    """The error to raise instead of retrying, if `error` comes from a TLS handshake that will fail every time."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError) and cause.reason in TLS_MISTAKES:
            return ConfigurationError(f"Cannot connect to {shown_url(url)}: {TLS_MISTAKES[cause.reason]} ({cause}).")
        cause = cause.__cause__ or cause.__context__
    return None


def headers_of(key: str | None) -> dict[str, str]:
    """The headers of each request. Raises ConfigurationError for a malformed key, without repeating the key."""
    key = (os.environ.get("OKL_KEY") or "" if key is None else key).strip()
    if not key:
        return {}
    if not (key.isascii() and key.isprintable()):
        raise ConfigurationError("The key is none of a service: it has other characters than a key has.")
    return {"Authorization": f"Bearer {key}"}
