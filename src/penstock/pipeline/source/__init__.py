"""The Redis Streams source: plan id ranges, read them, fold events into rows."""
