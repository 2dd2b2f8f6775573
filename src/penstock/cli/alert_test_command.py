"""`penstock alerts test`: run a rule over past metrics before it pages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from penstock.cli.alert_rule_commands import RULES_PATH, File, read_rule_file
from penstock.cli.listing import Listing
from penstock.cli.options import BrokerOptions, with_option_groups
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.cli.alert_documents import (
        BacktestDocument,
        BacktestIncidentDocument,
        BacktestResultDocument,
    )

TIMEOUT_S = 600.0
MAX_ROWS = 20
"""Incidents in the table, the latest ones."""


@with_option_groups
def backtest_rule(
    *,
    file: File,
    rule: Annotated[
        str | None, typer.Option("--rule", help="Name of the rule, if the file has more than one.")
    ] = None,
    period: Annotated[
        str | None,
        typer.Option("--period", help="Length of the period until now: 24h, 7d, 30d. Default: 7d."),
    ] = None,
    at_most: Annotated[
        str | None,
        typer.Option("--at-most", help="Suggest the threshold that pages at most this often: 1/week, 2/day."),
    ] = None,
    incident: Annotated[
        str | None,
        typer.Option("--incident", help="Test over the time around this past incident, and compare with it."),
    ] = None,
    broker_options: BrokerOptions,
) -> None:
    """Run a rule over past metrics: when it would have fired, and what it would have notified."""
    from penstock.cli.alert_documents import BacktestDocument

    body = {
        "rule": _choose_rule(file, rule),
        "period": period,
        "atMost": at_most,
        "incidentId": incident,
    }
    fields = {name: value for name, value in body.items() if value is not None}
    progress = Console(stderr=True, quiet=broker_options.as_json or not sys.stderr.isatty())
    with broker_options.connect() as broker, progress.status("Running the rule over past metrics …"):
        document = broker.post(f"{RULES_PATH}/test", BacktestDocument, fields, timeout_s=TIMEOUT_S)
    broker_options.print(document, _describe(document))


def _choose_rule(file: Path, name: str | None) -> dict[str, Any]:
    """Return the only rule of the file, or the one with the name."""
    rules = read_rule_file(file)
    names = ", ".join(repr(rule["name"]) for rule in rules)
    if not rules:
        raise ConfigError(f"{file} has no rules. Write one as [[rule]].")
    if name is None and len(rules) > 1:
        raise ConfigError(f"{file} has {len(rules)} rules. Choose one with --rule: {names}.")
    for rule in rules:
        if name in (None, rule["name"]):
            return dict(rule)
    raise ConfigError(f"{file} has no rule {name!r}. It has {names}.")


def _describe(document: BacktestDocument) -> RenderableType:
    sentence = Text.assemble((document["rule"], "bold"), " ", document["sentence"], ".")
    blocks: list[RenderableType] = [sentence, Text(""), _plot(document)]
    blocks += _incident_rows(document)
    blocks += _remarks(document)
    if document["replay"]:
        replay = document["replay"]
        resolved = _minute(replay["resolvedAt"]) if replay["resolvedAt"] else "still open"
        times = f"{_minute(replay['openedAt'])} – {resolved}"
        blocks += [
            Text(""),
            Text.assemble(
                f"Incident of {replay['rule']!r}, {times}: the rule ", (replay["sentence"], "bold"), "."
            ),
        ]
    if document["suggestion"]:
        suggestion = document["suggestion"]
        blocks += [Text(""), Text.assemble(("Suggestion: ", "bold"), suggestion["sentence"], ".")]
        if suggestion["test"]:
            blocks += _incident_rows(suggestion["test"])
    return Group(*blocks)


def _plot(document: BacktestDocument) -> RenderableType:
    from penstock.alerts.evaluation.descriptions import format_value
    from penstock.alerts.rules.rule_types import Unit
    from penstock.cli.terminal_plot import Plot

    unit = Unit(document["unit"])
    values = document["series"]["values"]
    if all(value is None for value in values):
        return Text("No queue of the rule has metrics in this period.", style="yellow")
    start = str(dict(document)["from"])
    return Plot(
        values,
        document["threshold"],
        lambda value: format_value(unit, value),
        _minute(start),
        _minute(document["to"]),
    )


def _incident_rows(result: BacktestResultDocument) -> list[RenderableType]:
    incidents = result["incidents"]
    if not incidents:
        return []
    listing = Listing("Fired", "Resolved", "Worst", "Notice", "Queues", folding=("Queues",))
    for incident in incidents[-MAX_ROWS:]:
        resolved = _minute(incident["resolvedAt"]) if incident["resolvedAt"] else "still fires"
        listing.add_row(
            _minute(incident["openedAt"]),
            resolved,
            Text(incident["peakText"]),
            _describe_notice(incident),
            Text(_describe_queues(incident)),
        )
    rows: list[RenderableType] = [Text(""), listing]
    if len(incidents) > MAX_ROWS:
        rows.append(Text(f"… and {len(incidents) - MAX_ROWS} earlier ones; --json has all.", style="dim"))
    return rows


def _describe_notice(incident: BacktestIncidentDocument) -> Text:
    if not incident["notified"]:
        return Text(str(incident["heldBackBy"]), style="yellow")
    delayed = incident["notifiedAt"] != incident["openedAt"]
    return Text(f"at {str(incident['notifiedAt'])[11:16]}" if delayed else "yes", style="green")


def _describe_queues(incident: BacktestIncidentDocument) -> str:
    names = [queue["name"] for queue in incident["queues"][:3]]
    more = incident["queueCount"] - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _remarks(document: BacktestDocument) -> list[RenderableType]:
    spans = [
        Text(f"Unknown {_minute(span['from'])} – {_minute(span['to'])}: {span['reason']}.", style="yellow")
        for span in document["unknown"]
    ]
    return [Text(""), *spans] if spans else []


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")
