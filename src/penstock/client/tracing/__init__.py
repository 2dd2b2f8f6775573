"""Spans and metrics of a client, for applications that use OpenTelemetry.

`discovery` decides whether there is a tracer; the other modules import OpenTelemetry, and nothing imports
them without one.
"""
