"""Pauses by chance, so that workers that started together do not stay so.

Drawn from a generator of its own: the global one belongs to whoever seeds it.
"""

from __future__ import annotations

import random
from typing import Final

BY_CHANCE: Final = random.Random()
