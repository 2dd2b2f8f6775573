"""Integration tests of penstock.alerts.backtest."""
