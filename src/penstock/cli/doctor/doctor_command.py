"""`penstock doctor`: check the set-up and say what to do."""

from __future__ import annotations

from collections.abc import Iterator

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.doctor.findings import Check, CheckFinding, FindingLevel, Installation, run_check
from penstock.cli.exit_codes import ExitCode
from penstock.cli.json_output import print_json
from penstock.cli.listing import Listing, print_output, with_hint
from penstock.cli.options import AsJson

EXIT_CODES = {
    FindingLevel.OK: ExitCode.SUCCESS,
    FindingLevel.WARNING: ExitCode.WARNINGS,
    FindingLevel.PROBLEM: ExitCode.NEGATIVE,
}
STYLES = {FindingLevel.OK: "green", FindingLevel.WARNING: "yellow", FindingLevel.PROBLEM: "red"}


def doctor(as_json: AsJson = False) -> None:
    """Check set-up, settings, ports, disk, servers and pipeline, and say what to do.

    Works while the platform is stopped, too. Exit code 1 if there is a problem, 8 if there are only warnings.
    """
    findings = list(run_checks())
    levels = [finding.level for finding in findings]
    worst = next((level for level in reversed(FindingLevel) if level in levels), FindingLevel.OK)
    if as_json:
        print_json({"worst": worst.value, "checks": [finding.to_json() for finding in findings]})
    else:
        print_output(_finding_table(findings))
    raise typer.Exit(EXIT_CODES[worst])


def run_checks() -> Iterator[CheckFinding]:
    """Yield the findings of all checks, in an order in which the first problem often explains the others."""
    # The drivers of all servers take half a second to import, so other commands do not.
    from penstock.cli.doctor import machine_checks, settings_checks, store_checks
    from penstock.embedded.supervision.state import read_state

    settings, refused = settings_checks.load_checked_settings()
    yield from refused
    installation = Installation(settings, read_state(settings.home))
    checks: dict[str, Check] = {
        "versions": machine_checks.check_versions,
        "settings": settings_checks.check_contradictions,
        "access": settings_checks.check_exposure,
        "certificate": settings_checks.check_certificate,
        "platform": machine_checks.check_platform,
        "home": machine_checks.check_home,
        "disk": machine_checks.check_disk,
        "memory": machine_checks.check_memory,
        "broker": machine_checks.check_broker,
        "postgres": store_checks.check_postgres,
        "redis": store_checks.check_redis,
        "clickhouse": store_checks.check_clickhouse,
        "pipeline": store_checks.check_pipeline,
    }
    for subject, check in checks.items():
        is_refused = subject == settings_checks.SUBJECT and bool(refused)
        for finding in run_check(subject, check, installation):
            if not (is_refused and finding.level is FindingLevel.OK):
                yield finding


def _finding_table(findings: list[CheckFinding]) -> RenderableType:
    listing = Listing("Check", "State", "Finding", folding=("Finding",))
    for finding in findings:
        state = Text(finding.level.value, style=STYLES[finding.level])
        listing.add_row(Text(finding.subject), state, Text(finding.text))
    counts = {level: sum(finding.level is level for finding in findings) for level in FindingLevel}
    if not counts[FindingLevel.PROBLEM] and not counts[FindingLevel.WARNING]:
        return with_hint(listing, "Everything is in order.", "green")
    texts = [
        f"{count} {level.value}{'' if count == 1 else 's'}"
        for level, count in counts.items()
        if count and level is not FindingLevel.OK
    ]
    return Group(with_hint(listing, f"{' and '.join(reversed(texts))}.", "yellow"))
