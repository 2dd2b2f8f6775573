"""Apply numbered migrations of the ClickHouse schema, each once, and record their checksums.

A migration is a file `sql/NNNN_name.sql` whose text never changes. All migrations together produce the schema
that `schema` derives from the metric definitions. A test compares the two and fails if a definition changes
without a migration. To write the next file, start from the output of
`python -m penstock.warehouse.schema_migrations`: the current schema as the definitions declare it.

ClickHouse has no transactional DDL. Every step is safe to repeat, and a migration is recorded after its last
step, so the next start completes a migration that was interrupted. The caller holds a lock against concurrent
migrations; without it two processes would do the same work twice, with the same result.
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
from penstock.warehouse.cluster import rewrite_for_cluster
from penstock.warehouse.distributed_tables import (
    count_shards,
    distributed_statements,
    holds_only_distributed_tables,
    shard_database,
)
from penstock.warehouse.schema import MIGRATIONS_TABLE, metric_statements, shared_table_statements

STEP_TIMEOUT_S = 6 * 3600.0
"""A step may copy all rows of a table."""

UNLESS_PREFIX = "-- unless:"
_FILE_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """One statement. It is skipped if the query `unless` returns a row."""

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
    def steps(self) -> list[MigrationStep]:
        """The statements, which end with a semicolon at the end of a line. Lines that start with `--` are
        comments.

        One comment has a meaning: `-- unless: QUERY` skips the next statement if the query returns a row. It
        makes statements repeatable that otherwise are not.
        """
        steps, lines, unless = [], [], None
        for line in self.text.splitlines():
            if line.startswith(UNLESS_PREFIX):
                unless = line.removeprefix(UNLESS_PREFIX).strip()
            elif not line.startswith("--"):
                lines.append(line)
                if line.rstrip().endswith(";"):
                    steps.append(MigrationStep("\n".join(lines).strip().removesuffix(";").rstrip(), unless))
                    lines, unless = [], None
        return steps

    @property
    def statements(self) -> list[str]:
        return [step.statement for step in self.steps]


def load_migrations() -> list[Migration]:
    """Return the migrations of this version, in order."""
    migrations = []
    for file in resources.files("penstock.warehouse").joinpath("sql").iterdir():
        if matched := _FILE_NAME.fullmatch(file.name):
            migrations.append(Migration(int(matched[1]), matched[2], file.read_text()))
    return sorted(migrations, key=lambda migration: migration.number)


def migrate(url: str, cluster: str = "") -> list[str]:
    """Migrate a database and return the names of the migrations applied, if any.

    Creates the database if it does not exist; with `cluster`, migrates all nodes of the cluster. Raises
    MigrationError before any change if a recorded migration differs from the one in this version, or if the
    database has migrations that this version lacks.
    """
    if cluster and _is_sharded(url, cluster):
        return _migrate_shards(url, cluster)
    warehouse = connect(url, STEP_TIMEOUT_S)
    try:
        _ensure_database(url, cluster)
        return apply_migrations(warehouse, load_migrations(), cluster)
    finally:
        warehouse.close()


def _is_sharded(url: str, cluster: str) -> bool:
    server = connect(_database_url(url, ""))
    try:
        return count_shards(server, cluster) > 1
    finally:
        server.close()


def _migrate_shards(url: str, cluster: str) -> list[str]:
    """Migrate the tables of all shards, then replace the distributed tables, which hold no rows."""
    database = _database_name(url)
    _check_database_name(database)
    server = connect(_database_url(url, ""), STEP_TIMEOUT_S)
    tables = connect(_database_url(url, shard_database(database)), STEP_TIMEOUT_S)
    try:
        if not holds_only_distributed_tables(server, database):
            raise MigrationError(
                f"Cluster {cluster} has several shards, and database {database} has the tables of one: set "
                "PENSTOCK_CLICKHOUSE_URL to a new database, or use a cluster with one shard."
            )
        for name in (database, shard_database(database)):
            server.command(rewrite_for_cluster(f"CREATE DATABASE IF NOT EXISTS {name}", cluster))
        applied = apply_migrations(tables, load_migrations(), cluster, sharded=True)
        # A shard or replica that was added since the last migration has no tables yet.
        for statement in Migration(0, "everything", render_schema(cluster=cluster)).statements:
            tables.command(statement)
        for statement in distributed_statements(cluster, database):
            server.command(statement)
        return applied
    finally:
        tables.close()
        server.close()


def apply_migrations(
    warehouse: Warehouse, migrations: Iterable[Migration], cluster: str = "", *, sharded: bool = False
) -> list[str]:
    """Apply the migrations that are not recorded yet, in order. A `sharded` cluster shares one record.

    An empty database gets the current schema directly, and all migrations are recorded as applied: the result
    is the same, and no table has to be changed on the way. A cluster without recorded migrations is treated
    the same way, because its existing tables already have the current structure.
    """

    def command(statement: str) -> None:
        warehouse.command(rewrite_for_cluster(statement, cluster) if cluster else statement)

    records = (
        f"CREATE TABLE IF NOT EXISTS {MIGRATIONS_TABLE} (number UInt32, name String, checksum String, "
        "applied_at DateTime64(3, 'UTC') DEFAULT now64(3)) ENGINE = ReplacingMergeTree ORDER BY number"
    )
    warehouse.command(rewrite_for_cluster(records, cluster, shared=sharded) if cluster else records)
    if cluster:
        warehouse.command(f"SYSTEM SYNC REPLICA {MIGRATIONS_TABLE}")
    recorded = {
        int(row["number"]): (str(row["name"]), str(row["checksum"]))
        for row in warehouse.query(
            f"SELECT number, name, checksum FROM {MIGRATIONS_TABLE} FINAL ORDER BY number"
        )
    }
    planned = list(migrations)
    _check_recorded(recorded, planned)
    creates_current_schema = not recorded and (
        bool(cluster) or (planned == load_migrations() and _is_empty(warehouse))
    )
    if creates_current_schema:
        for statement in Migration(0, "everything", render_schema()).statements:
            command(statement)
    applied = []
    for migration in planned:
        if migration.number in recorded:
            continue
        for step in [] if creates_current_schema else migration.steps:
            if step.unless is None or not warehouse.query(step.unless):
                command(step.statement)
        warehouse.command(
            f"INSERT INTO {MIGRATIONS_TABLE} (number, name, checksum) "
            f"VALUES ({migration.number}, '{migration.name}', '{migration.checksum}')",
            {"async_insert": 0},
        )
        applied.append(migration.label)
    return applied


def render_schema(definitions: Iterable[MetricDefinition] = DEFINITIONS, cluster: str = "") -> str:
    """Return the current schema in the form of a migration file, for one server or for a cluster."""
    statements = shared_table_statements()
    for definition in definitions:
        statements += metric_statements(definition)
    if cluster:
        statements = [rewrite_for_cluster(statement, cluster) for statement in statements]
    return "".join(f"{statement};\n\n" for statement in statements).rstrip("\n") + "\n"


def _check_recorded(recorded: dict[int, tuple[str, str]], planned: list[Migration]) -> None:
    planned_by_number = {migration.number: migration for migration in planned}
    for number, (name, checksum) in recorded.items():
        if number not in planned_by_number:
            raise MigrationError(
                f"ClickHouse has migration {number:04}_{name}, which this version lacks: "
                "a newer Penstock has migrated this database. Run that version, or use another database."
            )
        if planned_by_number[number].checksum != checksum:
            raise MigrationError(
                f"migration {planned_by_number[number].label} differs from the one recorded in ClickHouse. A "
                "released migration must never change: restore the file and add a new migration."
            )


def _is_empty(warehouse: Warehouse) -> bool:
    return not warehouse.query(
        "SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name != {table:String} LIMIT 1",
        {"table": MIGRATIONS_TABLE},
    )


def _ensure_database(url: str, cluster: str) -> None:
    name = _database_name(url)
    if name == "default":
        return
    _check_database_name(name)
    server = connect(_database_url(url, ""))
    try:
        if not server.query("SELECT 1 FROM system.databases WHERE name = {name:String}", {"name": name}):
            statement = f"CREATE DATABASE IF NOT EXISTS {name}"
            server.command(rewrite_for_cluster(statement, cluster) if cluster else statement)
    finally:
        server.close()


def _check_database_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise MigrationError(
            f"{name!r} is not a valid name of a ClickHouse database. Use letters, digits and _."
        )


def _database_name(url: str) -> str:
    return urlsplit(url).path.strip("/") or "default"


def _database_url(url: str, database: str) -> str:
    """Return the URL of another database of the same server; an empty name is that of the user's default."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}" if database else ""))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Print the current schema, as the metric definitions declare it."
    )
    parser.add_argument(
        "--cluster",
        default="",
        help="name of a ClickHouse cluster; without it, the schema of a single server",
    )
    print(render_schema(cluster=parser.parse_args().cluster), end="")
