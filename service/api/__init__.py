"""HTTP: what goes over the wire, the guards in front of every route, the routes, and errors as problem documents."""
