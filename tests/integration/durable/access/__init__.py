"""Tests of penstock.durable.access."""
