"""Integration tests of penstock.access.sessions."""
