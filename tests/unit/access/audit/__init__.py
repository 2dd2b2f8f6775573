"""Unit tests of penstock.access.audit."""
