"""How often those tests draw that draw what they do: `TIMES=10 pytest ...` draws ten times as much."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("TIMES", "1"))
