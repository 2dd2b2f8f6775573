"""The HTTP API: routes, schemas, problem details. It translates requests; decisions live in the broker."""
