"""`python -m tests.simulation SEED [SEED ...]`: run schedules again."""

import sys

from tests.simulation.world import simulate

for seed in map(int, sys.argv[1:]):
    world = simulate(seed)
    print(f"seed {seed}: {len(world.told)} rounds acknowledged, rollbacks to {world.kept}")
