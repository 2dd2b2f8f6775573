"""Durable queues between HTTP and PostgreSQL: push, pop, ack, overload management, journal and metrics.

This package knows neither HTTP nor SQL.
"""
