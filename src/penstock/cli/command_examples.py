"""An example of each command, shown in its help and in the reference. A test parses all of them."""

from __future__ import annotations

from collections.abc import Iterator

import typer
from typer.models import CommandInfo

INCIDENT = "01994c2e-7d1f-7a30-9d60-6f1f0f9f2b11"
OPERATION = "019a86c2-3b5a-7c21-8f0e-5a8c3d2e1f10"

EXAMPLES: dict[str, tuple[str, ...]] = {
    "ack": (
        "ack message:3:4.0190a1b2:order-7",
        "ack task:01a1dff1-0:1794758499017640 --failed --error 'no space left'",
    ),
    "alerts ack": (f"alerts ack {INCIDENT} --by ada",),
    "alerts apply": ("alerts apply rules.toml",),
    "alerts channels create": (
        "alerts channels create ops --kind webhook --to-url https://example.com/hooks/penstock",
    ),
    "alerts channels ls": ("alerts channels ls",),
    "alerts channels rm": ("alerts channels rm ops --yes",),
    "alerts defaults": ("alerts defaults --channel ops",),
    "alerts deliveries": ("alerts deliveries --state failed",),
    "alerts diff": ("alerts diff rules.toml",),
    "alerts disable": ("alerts disable 'orders back up'",),
    "alerts enable": ("alerts enable 'orders back up'",),
    "alerts export": ("alerts export > rules.toml",),
    "alerts incidents": ("alerts incidents --severity critical", "alerts incidents --watch"),
    "alerts ls": ("alerts ls",),
    "alerts note": (f"alerts note {INCIDENT} 'The provider is down.'",),
    "alerts retry": (f"alerts retry {INCIDENT}",),
    "alerts rm": ("alerts rm 'orders back up' --yes",),
    "alerts run": ("alerts run",),
    "alerts send-test": ("alerts send-test ops",),
    "alerts show": (f"alerts show {INCIDENT}",),
    "alerts silences create": ("alerts silences create --queue 'orders*' --for 2h --comment migration",),
    "alerts silences ls": ("alerts silences ls --all",),
    "alerts silences rm": (f"alerts silences rm {INCIDENT}",),
    "alerts test": ("alerts test rules.toml --rule 'orders back up' --period 7d",),
    "annotations create": ("annotations create v1.2.3 --queue orders --key build-7",),
    "annotations ls": ("annotations ls --queue orders --kind deploy",),
    "annotations rm": ("annotations rm 4711",),
    "audit export": ("audit export changes.jsonl --since 30d",),
    "audit ls": ("audit ls --since 2h", "audit ls --denied --subject ci"),
    "audit show": ("audit show 4711",),
    "backup": ("backup /backup/penstock.zip",),
    "bench": ("bench", "bench --messages 50000 --batch 1 --producers 8 --consumers 8"),
    "config": ("config journal",),
    "dlq assign": (f'dlq assign {INCIDENT} ada --note "waits for the provider"',),
    "dlq cancel": (f"dlq cancel {OPERATION}",),
    "dlq groups": ("dlq groups --queue orders", "dlq groups --state new --state back-again"),
    "dlq ignore": (
        f"dlq ignore {INCIDENT} --count 100",
        f"dlq ignore {INCIDENT} --until 2027-01-31",
    ),
    "dlq jobs": ("dlq jobs",),
    "dlq ls": ("dlq ls --queue orders --error timeout",),
    "dlq open": (f"dlq open {INCIDENT}",),
    "dlq purge": ("dlq purge --queue orders --to 2026-01-31 --dry-run",),
    "dlq requeue": ("dlq requeue 4711", "dlq requeue --queue orders --error timeout --rate 50 --sample 10"),
    "dlq resolve": (f"dlq resolve {INCIDENT} --queue orders",),
    "dlq show": ("dlq show 4711",),
    "dlq status": ("dlq status --queue orders",),
    "doctor": ("doctor", "doctor --json"),
    "env create": ("env create acme/shop/production",),
    "env ls": ("env ls",),
    "env quotas": ("env quotas acme/shop/production --set requestsPerSecond=500",),
    "env rm": ("env rm acme/shop/staging",),
    "env show": ("env show acme/shop/production",),
    "groups lagging": ("groups lagging --longer-than 5m",),
    "groups ls": ("groups ls --queue orders --watch",),
    "groups rm": ("groups rm billing --queue orders",),
    "groups seek": (
        "groups seek billing orders --to 2026-01-31T08:00:00Z",
        "groups seek billing orders --to-end --yes",
    ),
    "groups show": ("groups show billing",),
    "logs": ("logs broker -f",),
    "messages ls": ("messages ls --queue orders --state pending -n 50",),
    "messages rm": ("messages rm 3 order-7",),
    "messages search": (
        "messages search Bern --queue orders --from 2026-01-31T08:00:00Z",
        "messages search --queue orders --key '$.orderId=42'",
    ),
    "messages show": ("messages show 3 order-7",),
    "migrate": ("migrate --create-database",),
    "ops cancel": (f"ops cancel {OPERATION}",),
    "ops horizon": ("ops horizon --longer-than 0s",),
    "ops journal": ("ops journal",),
    "ops lanes": ("ops lanes --queue orders",),
    "ops load": ("ops load --watch",),
    "ops ls": ("ops ls --state failed",),
    "ops retry": (f"ops retry {OPERATION}",),
    "ops show": (f"ops show {OPERATION}",),
    "pipeline compact": ("pipeline compact --before 2026-01-31",),
    "pipeline drain": ("pipeline drain",),
    "pipeline losses": ("pipeline losses",),
    "pipeline rebuild": ("pipeline rebuild --from 2026-01-30 --to 2026-01-31 --dry-run",),
    "pipeline replay": ("pipeline replay --dry-run",),
    "pipeline reset": ("pipeline reset --yes",),
    "pipeline run": ("pipeline run",),
    "pipeline status": ("pipeline status --watch",),
    "pop": ("pop orders --group billing --batch 10 --wait 30s", "pop orders --ack --json"),
    "push": (
        """push orders '{"id": 7}' --partition eu --id order-7""",
        "push orders < orders.ndjson",
        "push renders 7 --kind run --delay 10m",
    ),
    "queues configure": ("queues configure orders --set leaseTime=60 --set retryLimit=5",),
    "queues create": (
        "queues create orders --set retentionEnabled=true --set retentionSeconds=86400",
        "queues create renders --kind run --concurrency 4",
    ),
    "queues limit": ("queues limit renders 10",),
    "queues ls": ("queues ls --search orders --watch",),
    "queues pause": ("queues pause orders",),
    "queues purge": ("queues purge orders",),
    "queues resume": ("queues resume orders",),
    "queues rm": ("queues rm orders",),
    "queues scaling": ("queues scaling orders --group billing --wait-target 10 --max 20",),
    "queues show": ("queues show orders",),
    "report capacity": ("report capacity --period 12w --queue orders",),
    "restore": ("restore /backup/penstock.zip",),
    "scaler": ("scaler --url http://penstock:7480",),
    "serve": ("serve --workers 4",),
    "status": ("status --watch",),
    "tokens create": ("tokens create ci --scopes produce,consume --queues 'orders*' --expires 90d",),
    "tokens ls": ("tokens ls --all",),
    "tokens revoke": ("tokens revoke ci",),
    "tokens rotate": ("tokens rotate ci --overlap 24h",),
    "tokens show": ("tokens show ci",),
    "top": ("top --sort oldest", "top --once --json"),
    "up": ("up --demo",),
    "version": ("version",),
}
"""Examples by the words of a command, without the leading `penstock`."""


def add_examples(app: typer.Typer) -> None:
    """Show the examples of each command below its help."""
    for words, command in _commands(app):
        if examples := EXAMPLES.get(words):
            # A paragraph each: the help joins the lines of a paragraph.
            command.epilog = "\n\n".join(["Examples:", *(f"`penstock {example}`" for example in examples)])


def _commands(app: typer.Typer, prefix: str = "") -> Iterator[tuple[str, CommandInfo]]:
    for command in app.registered_commands:
        if not command.hidden and command.callback is not None:
            yield f"{prefix}{command.name or command.callback.__name__.replace('_', '-')}", command
    for group in app.registered_groups:
        if not group.hidden and group.typer_instance is not None:
            yield from _commands(group.typer_instance, f"{prefix}{group.name} ")
