"""Backtests: run a rule over stored metrics."""
