"""What the broker measures: queue counters for the pipeline, and its own process per minute."""
