"""`penstock alerts …`: rules, incidents, channels and the delivery of notices."""

from __future__ import annotations

import typer

from penstock.cli import alert_rule_commands as rule_commands
from penstock.cli.alert_channel_commands import channels, deliveries, retry, send_test
from penstock.cli.alert_incident_commands import acknowledge, add_note, list_incidents, show_incident
from penstock.cli.alert_silence_commands import silences
from penstock.cli.alert_test_command import backtest_rule

alerts = typer.Typer(
    help="Alert rules, incidents, and the channels that notices go to.", no_args_is_help=True
)
alerts.command("ls")(rule_commands.list_rules)
alerts.command("apply")(rule_commands.apply)
alerts.command("diff")(rule_commands.diff)
alerts.command("test")(backtest_rule)
alerts.command("export")(rule_commands.export)
alerts.command("enable")(rule_commands.enable)
alerts.command("disable")(rule_commands.disable)
alerts.command("rm")(rule_commands.remove)
alerts.command("defaults")(rule_commands.defaults)
alerts.command("run")(rule_commands.run)
alerts.add_typer(channels, name="channels")
alerts.command("send-test")(send_test)
alerts.command("deliveries")(deliveries)
alerts.command("retry")(retry)
alerts.command("incidents")(list_incidents)
alerts.command("show")(show_incident)
alerts.command("ack")(acknowledge)
alerts.command("note")(add_note)
alerts.add_typer(silences, name="silences")
