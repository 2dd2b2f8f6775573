"""Incidents: grouping, causes, silences and inhibition."""
