"""HTTP/1.1 for the client: connections, retries, one call per route."""
