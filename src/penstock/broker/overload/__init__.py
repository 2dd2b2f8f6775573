"""Overload management: measure load, defer or refuse requests, execute deferred operations."""
