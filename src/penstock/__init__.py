"""Penstock: queues that keep their order under load and measure themselves."""

__version__ = "0.1.0"
