"""Integration tests of penstock.access.people."""
