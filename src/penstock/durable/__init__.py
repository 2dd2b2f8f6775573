"""Durable queues on PostgreSQL: pool, schema, and one Python call per SQL function.

The only package that imports the PostgreSQL driver. It knows tables and functions; batching, metrics and
HTTP live above it.
"""
