"""Unit tests of penstock.access."""
