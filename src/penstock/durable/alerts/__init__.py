"""Alerts in PostgreSQL: rules, states, incidents, silences, channels and the outbox of notices."""
