"""Tests of quotas against real servers."""
