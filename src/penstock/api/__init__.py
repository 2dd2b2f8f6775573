"""The HTTP face: routes, schemas, problem details. It translates; decisions live in the broker."""
