"""`penstock alerts incidents`, `show`, `ack` and `note` against a broker on a real socket."""

from __future__ import annotations

from penstock.durable.pool import Database
from tests.integration.cli.test_alert_channel_commands import run, run_json, url
from tests.integration.durable.alerts.alert_rows import add_incident

__all__ = ["url"]


async def test_an_incident_is_listed_acknowledged_annotated_and_shown(url: str, database: Database) -> None:
    incident_id = str(await add_incident(database))
    await database.fetch(
        "INSERT INTO alert_incident_queues (incident_id, queue, fired_at, value, threshold, summary) "
        "VALUES ($1, 'orders', now(), 50, 10, '50 messages wait.')",
        incident_id,
    )
    listed = await run(url, "incidents", "--queue", "orders")
    assert incident_id in listed.stdout
    acknowledged = await run(url, "ack", incident_id, "--by", "ada")
    assert acknowledged.stdout == f"Incident {incident_id} is acknowledged by ada.\n"
    noted = await run(url, "note", incident_id, "[restarted] the workers", "--by", "ada")
    assert noted.exit_code == 0, noted.output
    shown = (await run(url, "show", incident_id)).stdout
    for text in ("acknowledged", "50 messages wait.", "[restarted] the workers"):
        assert text in shown
    await database.fetch("UPDATE alert_incidents SET resolved_at = now(), resolution = 'cleared'")
    assert (await run(url, "incidents")).stdout == "There are no incidents.\n"
    [resolved] = await run_json(url, "incidents", "--all")
    assert resolved["state"] == "resolved"
