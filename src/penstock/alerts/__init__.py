"""Alerts: rules, their evaluation, incidents and the delivery of notices."""
