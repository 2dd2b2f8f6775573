"""Integration tests of penstock.access."""
