"""The number of examples that randomized tests draw: `TIMES=10 pytest ...` draws ten times as many."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("TIMES", "1"))
