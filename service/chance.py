"""Random jitter for pauses, so that workers that started together do not stay in step.

It has its own generator, since other code may seed the global one.
"""

from __future__ import annotations

import random
from typing import Final

BY_CHANCE: Final = random.Random()
