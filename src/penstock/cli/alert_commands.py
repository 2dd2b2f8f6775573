"""`penstock alerts …`: rules, incidents, channels and the delivery of notices."""

from __future__ import annotations

import typer

from penstock.cli.alert_channel_commands import channels, deliveries, retry, send_test

alerts = typer.Typer(
    help="Alert rules, incidents, and the channels that notices go to.", no_args_is_help=True
)
alerts.add_typer(channels, name="channels")
alerts.command("send-test")(send_test)
alerts.command("deliveries")(deliveries)
alerts.command("retry")(retry)
