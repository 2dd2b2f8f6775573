"""Unit tests of penstock.access.sessions."""
