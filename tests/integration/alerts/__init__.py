"""Integration tests of penstock.alerts."""
