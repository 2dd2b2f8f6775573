"""Numbered changes of the ClickHouse schema, each applied once and recorded with its checksum.

A migration is a file `sql/NNNN_name.sql` whose text never changes again. What they add up to is what
`schema` makes of the metric definitions; a test compares the two, so a definition that changed without a
migration does not pass. To write the next file, start from what `python -m penstock.warehouse.schema_migrations`
prints: the whole schema as the definitions have it now.

ClickHouse has no transactional DDL. Every step can be repeated, and a migration is recorded after its
last one, so a starter that died half-way is completed by the next. Two starters at once are kept apart by a
lock the caller holds; without it they would do the same work twice, with the same result.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from urllib.parse import urlsplit, urlunsplit

from penstock.definitions import DEFINITIONS, MetricDefinition
from penstock.errors import MigrationError
from penstock.warehouse.clickhouse_client import Warehouse, connect
from penstock.warehouse.cluster import for_cluster
from penstock.warehouse.schema import shared_statements, statements

LONGEST_STEP_S = 6 * 3600.0
"""A step may carry over all there is."""

RECORD = "schema_migrations"
UNLESS = "-- unless:"
_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


@dataclass(frozen=True, slots=True)
class Step:
    statement: str
    unless: str | None = None


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    text: str

    @property
    def label(self) -> str:
        return f"{self.number:04}_{self.name}"

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def steps(self) -> list[Step]:
        """Statements end with a semicolon at the end of a line; `--` lines are for readers.

        One line is for us: `-- unless: QUERY` leaves the next statement out if the query finds a row. It is
        for statements that cannot be repeated by themselves.
        """
        found, lines, unless = [], [], None
        for line in self.text.splitlines():
            if line.startswith(UNLESS):
                unless = line.removeprefix(UNLESS).strip()
            elif not line.startswith("--"):
                lines.append(line)
                if line.rstrip().endswith(";"):
                    found.append(Step("\n".join(lines).strip().removesuffix(";").rstrip(), unless))
                    lines, unless = [], None
        return found

    @property
    def statements(self) -> list[str]:
        return [step.statement for step in self.steps]


def known_migrations() -> list[Migration]:
    """The migrations this version knows, in order."""
    found = []
    for file in resources.files("penstock.warehouse").joinpath("sql").iterdir():
        if matched := _NAME.fullmatch(file.name):
            found.append(Migration(int(matched[1]), matched[2], file.read_text()))
    return sorted(found, key=lambda migration: migration.number)


def migrate(url: str, cluster: str = "") -> list[str]:
    """Bring the database that `url` names up to date; returns what was applied, empty if nothing was due.

    Creates the database if need be. With the name of a `cluster`, on all its nodes. Raises MigrationError,
    having changed nothing, when a recorded migration differs from the one known here or the database is
    ahead of this version.
    """
    warehouse = connect(url, LONGEST_STEP_S)
    try:
        _ensure_database(url, cluster)
        return apply(warehouse, known_migrations(), cluster)
    finally:
        warehouse.close()


def apply(warehouse: Warehouse, migrations: Iterable[Migration], cluster: str = "") -> list[str]:
    """Apply those of `migrations` that are not recorded yet, in order.

    An empty database gets the whole schema at once, as the definitions have it, and all are recorded: what
    they add up to is the same, and no table has to be changed on the way. So does a cluster that has none of
    them recorded, where what is there already is of the same form.
    """

    def command(statement: str) -> None:
        warehouse.command(for_cluster(statement, cluster) if cluster else statement)

    command(
        f"CREATE TABLE IF NOT EXISTS {RECORD} (number UInt32, name String, checksum String, "
        "applied_at DateTime64(3, 'UTC') DEFAULT now64(3)) ENGINE = ReplacingMergeTree ORDER BY number"
    )
    if cluster:
        warehouse.command(f"SYSTEM SYNC REPLICA {RECORD}")
    recorded = {
        int(row["number"]): (str(row["name"]), str(row["checksum"]))
        for row in warehouse.query(f"SELECT number, name, checksum FROM {RECORD} FINAL ORDER BY number")
    }
    planned = list(migrations)
    _check(recorded, planned)
    at_once = not recorded and (bool(cluster) or (planned == known_migrations() and _is_empty(warehouse)))
    if at_once:
        for statement in Migration(0, "everything", render()).statements:
            command(statement)
    applied = []
    for migration in planned:
        if migration.number in recorded:
            continue
        for step in [] if at_once else migration.steps:
            if step.unless is None or not warehouse.query(step.unless):
                command(step.statement)
        warehouse.command(
            f"INSERT INTO {RECORD} (number, name, checksum) "
            f"VALUES ({migration.number}, '{migration.name}', '{migration.checksum}')",
            {"async_insert": 0},
        )
        applied.append(migration.label)
    return applied


def render(definitions: Iterable[MetricDefinition] = DEFINITIONS, cluster: str = "") -> str:
    """The whole schema as the definitions have it, in the form of a migration file; or for a cluster."""
    every = shared_statements()
    for definition in definitions:
        every += statements(definition)
    if cluster:
        every = [for_cluster(statement, cluster) for statement in every]
    return "".join(f"{statement};\n\n" for statement in every).rstrip("\n") + "\n"


def _check(recorded: dict[int, tuple[str, str]], planned: list[Migration]) -> None:
    known = {migration.number: migration for migration in planned}
    for number, (name, checksum) in recorded.items():
        if number not in known:
            raise MigrationError(
                f"ClickHouse has migration {number:04}_{name}, which this version does not know: "
                "a newer Penstock has used this database. Run that version, or use another database."
            )
        if known[number].checksum != checksum:
            raise MigrationError(
                f"migration {known[number].label} is not the one that ClickHouse recorded as applied: a "
                "released migration must never change. Restore the file, and put the change in a new one."
            )


def _is_empty(warehouse: Warehouse) -> bool:
    return not warehouse.query(
        "SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name != {record:String} LIMIT 1",
        {"record": RECORD},
    )


def _ensure_database(url: str, cluster: str) -> None:
    parts = urlsplit(url)
    name = parts.path.strip("/")
    if not name or name == "default":
        return
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise MigrationError(
            f"{name!r} cannot be the name of a ClickHouse database; use letters, digits and _"
        )
    server = connect(urlunsplit(parts._replace(path="")))
    try:
        if not server.query("SELECT 1 FROM system.databases WHERE name = {name:String}", {"name": name}):
            statement = f"CREATE DATABASE IF NOT EXISTS {name}"
            server.command(for_cluster(statement, cluster) if cluster else statement)
    finally:
        server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print the schema as the metric definitions have it.")
    parser.add_argument("--cluster", default="", help="the name of a ClickHouse cluster; one server without")
    print(render(cluster=parser.parse_args().cluster), end="")
