"""The HTTP API: wire models, the guards in front of every route, the routes, and errors as problem documents."""
