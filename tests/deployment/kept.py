"""What docker/nginx/nginx.conf lets the bodies of requests take of the folder that it runs in."""

from __future__ import annotations

import re

from bench.balancer import SCRIPT


def limit(directive: str) -> int:
    """The number that a directive ends with, such as `limit_conn kept`; in MiB where it is a size."""
    found = re.search(rf"^ *{directive} (\d+)m?;", (SCRIPT.parent / "nginx.conf").read_text(), re.MULTILINE)
    assert found, directive
    return int(found[1])


def kept_mib() -> int:
    return limit("limit_conn kept") * limit("client_max_body_size")
