"""Unit tests of penstock.alerts.rules."""
