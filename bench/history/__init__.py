"""The history checker: real workers, a real store, faults, and a verdict on every acknowledged round.

inputs        inputs that name themselves: from a learner's state to the rounds that it learned
attempts      what is recorded: requests, faults, cuts of the past
raw_http      one connection that can break
allotment     which client plays which round of which session
caller        one client: its requests, its retries
own_*         the stores of a run, each with the faults that it can have
redis_process, redis_backups    what those on Redis are made of
injection     the seeded schedule of faults, and their injection
timeline      which instants of the past a session still has
final         what the store and each worker say at the end
told, kept    the checks of what clients were told, and of what the store kept
forecasts, service_level    those against an undisturbed learner, and of errors and outages
verdict       all checks
plants        planted faults, which the checks must find
run, report   one run, and what is printed of it
"""
