"""The head of a request, as the server's parser is to see it."""

from __future__ import annotations

import re
from typing import Final

_OFFER: Final = re.compile(rb"^upgrade(?=:)", re.IGNORECASE | re.MULTILINE)


def without_offers(head: bytes) -> bytes:
    """Return the head with the header `Upgrade` under another name, unless it asks for a websocket.

    Offers of other protocols, such as HTTP/2, are ignored; but the server's parser stops behind a head with any offer, and
    takes the body for the next request.
    """
    if b"upgrade" not in head.lower():
        return head
    last: dict[bytes, bytes] = {}
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        last[name.lower()] = value.lstrip(b" \t").lower()
    # As the server decides it: it takes the last header of each name, and a blank behind `websocket` makes it another name.
    wishes = [one.strip() for one in last.get(b"connection", b"").split(b",")]
    is_socket = last.get(b"upgrade") == b"websocket" and b"upgrade" in wishes
    return head if is_socket else _OFFER.sub(b"ignored", head)
