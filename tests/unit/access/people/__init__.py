"""Unit tests of penstock.access.people."""
