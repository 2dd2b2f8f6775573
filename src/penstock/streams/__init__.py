"""Metric events on Redis Streams: the emitter and the encoding of an event.

Emission is fire-and-forget: nothing here may ever delay or fail the operation it measures.
"""
