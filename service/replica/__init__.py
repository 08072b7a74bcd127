"""A worker's copies of sessions: loaded, caught up, scheduled, snapshotted, dropped. A copy is only a cache."""
