"""Unit tests of penstock.alerts.incidents."""
