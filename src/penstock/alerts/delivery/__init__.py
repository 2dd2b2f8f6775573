"""Delivery of notices to channels: outbox, senders and the check of addresses."""
