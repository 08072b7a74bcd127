"""The HTTP API: wire models, the checks in front of every route, the routes, and errors as problem documents."""
