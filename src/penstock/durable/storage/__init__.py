"""Maintenance of storage: chunks of the log, retention, vacuum and the vacuum horizon."""
