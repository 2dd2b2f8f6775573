"""Integration tests of penstock.access.audit."""
