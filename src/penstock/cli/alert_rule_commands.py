"""`penstock alerts ls, apply, diff, export, rm, enable, disable, defaults`: alert rules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from penstock.cli.listing import Listing
from penstock.cli.options import BrokerOptions, SkipConfirmation, with_option_groups
from penstock.cli.watch import watchable
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.alerts.rules.rule_files import RuleChange, RuleFields
    from penstock.cli.broker_client import BrokerClient

RULES_PATH = "/api/v1/alert-rules"

File = Annotated[Path, typer.Argument(help="A TOML file with [[rule]] tables; - reads standard input.")]
RuleName = Annotated[str, typer.Argument(help="Name of the rule.")]
DeleteOthers = Annotated[
    bool, typer.Option("--delete-others", help="Also delete rules that the file does not have.")
]

_STATE_COLOURS = {"firing": "red", "pending": "yellow", "clearing": "yellow", "unknown": "magenta"}
_ACTION_MARKS = {"create": "+", "change": "~", "delete": "-", "same": "="}


@with_option_groups
@watchable
def list_rules(broker_options: BrokerOptions) -> None:
    """List the alert rules with the number of queues in each state."""
    with broker_options.connect() as broker:
        rules = _read_rules(broker)
    broker_options.print(rules, _rule_table(rules))


@with_option_groups
def apply(file: File, delete_others: DeleteOthers = False, *, broker_options: BrokerOptions) -> None:
    """Create and change rules so that they match a file."""
    with broker_options.connect() as broker:
        changes, ids = _compare(broker, file, delete_others)
        for change in changes:
            _apply_change(broker, change, ids)
    broker_options.print(_changes_json(changes), _describe_changes(changes, applied=True))


@with_option_groups
def diff(file: File, delete_others: DeleteOthers = False, *, broker_options: BrokerOptions) -> None:
    """Show what `apply` would change. Exit code 1 if there is a difference."""
    with broker_options.connect() as broker:
        changes, _ = _compare(broker, file, delete_others)
    broker_options.print(_changes_json(changes), _describe_changes(changes, applied=False))
    raise typer.Exit(1 if any(change.action != "same" for change in changes) else 0)


@with_option_groups
def export(broker_options: BrokerOptions) -> None:
    """Print all rules as TOML, for `apply`."""
    from penstock.alerts.rules.rule_files import format_rules

    with broker_options.connect() as broker:
        rules = _read_rules(broker)
    broker_options.print(rules, Text(format_rules(rules).rstrip() or "# no alert rules"))


@with_option_groups
def remove(name: RuleName, yes: SkipConfirmation = False, *, broker_options: BrokerOptions) -> None:
    """Delete a rule. Its open incident is resolved."""
    with broker_options.connect() as broker:
        rule = _find_rule(broker, name)
        if not yes:
            typer.confirm(f"Delete the rule {name!r}?", abort=True)
        result = broker.delete(f"{RULES_PATH}/{rule['id']}", dict[str, Any])
    broker_options.print(result, Text(f"Rule {name!r} is deleted."))


@with_option_groups
def enable(name: RuleName, *, broker_options: BrokerOptions) -> None:
    """Switch a rule on."""
    _switch(broker_options, name, is_enabled=True)


@with_option_groups
def disable(name: RuleName, *, broker_options: BrokerOptions) -> None:
    """Switch a rule off. Its open incident is resolved."""
    _switch(broker_options, name, is_enabled=False)


@with_option_groups
def defaults(
    channel: Annotated[list[str], typer.Option("--channel", "-c", help="A channel for the notices.")],
    *,
    broker_options: BrokerOptions,
) -> None:
    """Switch on the default rules: growing backlog, old messages, dead letters, stalled, metrics behind."""
    from penstock.cli.alert_documents import AlertRulePageDocument

    with broker_options.connect() as broker:
        page = broker.post(f"{RULES_PATH}/defaults", AlertRulePageDocument, {"channels": channel})
    broker_options.print(page["rules"], _rule_table(page["rules"]))


def run() -> None:
    """Run only the evaluation of alerts and the delivery of notices."""
    from penstock.alerts import alerts_process
    from penstock.config import load_settings
    from penstock.embedded.supervision.platform import resolve_server_urls

    alerts_process.run(resolve_server_urls(load_settings(), "postgres_url", "redis_url", "clickhouse_url"))


def _switch(broker_options: BrokerOptions, name: str, *, is_enabled: bool) -> None:
    from penstock.alerts.rules.rule_files import strip_server_fields

    with broker_options.connect() as broker:
        rule = _find_rule(broker, name)
        fields = {**strip_server_fields(rule), "enabled": is_enabled}
        changed = broker.put(f"{RULES_PATH}/{rule['id']}", dict[str, Any], fields)
    broker_options.print(changed, Text(f"Rule {name!r} is {'on' if is_enabled else 'off'}."))


def _read_rules(broker: BrokerClient) -> list[dict[str, Any]]:
    from penstock.cli.alert_documents import AlertRulePageDocument

    return broker.get(RULES_PATH, AlertRulePageDocument)["rules"]


def _find_rule(broker: BrokerClient, name: str) -> dict[str, Any]:
    """Return the rule with this name or id."""
    import difflib

    rules = _read_rules(broker)
    for rule in rules:
        if name in (rule["name"], rule["id"]):
            return rule
    similar = difflib.get_close_matches(name, [rule["name"] for rule in rules], n=1)
    hint = f" Did you mean {similar[0]!r}?" if similar else " `penstock alerts ls` lists the rules."
    raise ConfigError(f"There is no alert rule {name!r}.{hint}")


def _compare(
    broker: BrokerClient, file: Path, delete_others: bool
) -> tuple[list[RuleChange], dict[str, str]]:
    from penstock.alerts.rules.rule_files import compare_rules

    wanted = read_rule_file(file)
    existing = _read_rules(broker)
    ids = {rule["name"]: rule["id"] for rule in existing}
    return compare_rules(wanted, existing, delete_others=delete_others), ids


def read_rule_file(file: Path) -> list[RuleFields]:
    """Return the checked rules of a file. Raises ConfigError."""
    from penstock.alerts.rules.rule_files import parse_rules

    return parse_rules(_read_file(file), "standard input" if str(file) == "-" else str(file))


def _read_file(file: Path) -> str:
    if str(file) == "-":
        return typer.get_text_stream("stdin").read()
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"{file} cannot be read: {reason}.") from None


def _apply_change(broker: BrokerClient, change: RuleChange, ids: dict[str, str]) -> None:
    document = dict[str, Any]
    if change.action == "create":
        broker.post(RULES_PATH, document, dict(change.rule))
    elif change.action == "change":
        broker.put(f"{RULES_PATH}/{ids[change.name]}", document, dict(change.rule))
    elif change.action == "delete":
        broker.delete(f"{RULES_PATH}/{ids[change.name]}", document)


def _changes_json(changes: list[RuleChange]) -> list[dict[str, Any]]:
    return [
        {
            "name": change.name,
            "action": change.action,
            "fields": {key: {"from": old, "to": new} for key, (old, new) in change.fields.items()},
        }
        for change in changes
    ]


def _describe_changes(changes: list[RuleChange], *, applied: bool) -> RenderableType:
    if not changes:
        return Text("The file has no rules, and there is nothing to do.")
    lines = []
    for change in changes:
        lines.append(Text(f"{_ACTION_MARKS[change.action]} {change.name}"))
        if change.action == "change":
            lines += [
                Text(f"    {key}: {_value(old)} → {_value(new)}", style="dim")
                for key, (old, new) in change.fields.items()
            ]
    counts = {action: sum(change.action == action for change in changes) for action in _ACTION_MARKS}
    verb = "" if applied else "would be "
    lines.append(
        Text(
            f"{counts['create']} {verb}created, {counts['change']} {verb}changed, "
            f"{counts['delete']} {verb}deleted, {counts['same']} unchanged."
        )
    )
    return Group(*lines)


def _value(value: Any) -> str:
    return "default" if value is None else str(value)


def _rule_table(rules: list[dict[str, Any]]) -> RenderableType:
    if not rules:
        return Text(
            "No alert rules. Write some with `penstock alerts apply FILE`, or switch on the default rules "
            "with `penstock alerts defaults --channel NAME`."
        )
    listing = Listing("Rule", "Type", "Queues", "State", "Channels", folding=("State",))
    for rule in rules:
        listing.add_row(
            escape(rule["name"]),
            rule["type"],
            escape(rule.get("queue") or "all"),
            _describe_state(rule),
            escape(", ".join(rule.get("channels") or []) or "–"),
        )
    return listing


def _describe_state(rule: dict[str, Any]) -> str:
    if not rule.get("enabled", True):
        return "[dim]off[/dim]"
    status = rule.get("status")
    if status is None:
        return "not evaluated yet"
    parts = [
        f"[{colour}]{status[name]:,} {name}[/{colour}]"
        for name, colour in _STATE_COLOURS.items()
        if status[name]
    ]
    return ", ".join(parts) or f"[green]{status['ok']:,} ok[/green]"
