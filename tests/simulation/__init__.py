"""The commit loop under seeded schedules: workers, clients and faults in one process, without sleeping."""
