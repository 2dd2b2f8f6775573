"""Unit tests of penstock.alerts."""
