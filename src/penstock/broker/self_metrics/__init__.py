"""Measurements of the broker: queue counters for the pipeline, and minute rows of each process."""
