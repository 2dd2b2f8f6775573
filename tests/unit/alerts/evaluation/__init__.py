"""Unit tests of penstock.alerts.evaluation."""
