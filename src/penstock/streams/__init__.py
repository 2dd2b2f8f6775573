"""Metric events on Redis Streams: the emitter, the encoding of events, and the positions of the pipeline.

Emission is fire-and-forget: nothing here may delay or fail the operation it measures.
"""
