"""Unit tests of penstock.alerts.backtest."""
