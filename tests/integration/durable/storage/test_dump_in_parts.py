"""The script of docs/backup.md that dumps the busy tables first, and the rest with the same snapshot."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.durable.pool import Database
from penstock.durable.storage import busy_tables
from penstock.durable.storage.busy_tables import BUSY_TABLES
from penstock.embedded.servers.data_directory import find_postgres_programs
from tests.integration.databases import new_database
from tests.integration.durable.queue_under_test import QueueUnderTest
from tests.integration.durable.storage.test_busy_tables import session
from tests.page_runner import find_blocks
from tests.waiting import wait_until_async

PAGE = Path(__file__).parents[4] / "docs" / "backup.md"
COUNTS = """
SELECT (SELECT sum(next_offset) FROM penstock.partitions) AS pushed,
       (SELECT sum(cursor) FROM penstock.positions) AS finished,
       (SELECT sum(messages) FROM penstock.tallies WHERE group_id = 0) AS counted_pushes,
       (SELECT sum(messages) FROM penstock.tallies WHERE group_id > 0) AS counted_acks"""


def find_block(start: str) -> str:
    """Return the block of the page that has this text."""
    [text] = [block.text for block in find_blocks(PAGE.read_text()) if start in block.text]
    return text


async def run_script(text: str, directory: Path, environment: Mapping[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", text),
        cwd=directory,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


def connection_variables(url: str) -> dict[str, str]:
    """Return the variables that PostgreSQL's programs read."""
    parts = urlsplit(url)
    return {
        "PATH": f"{find_postgres_programs()}:{os.environ['PATH']}",
        "PGHOST": parts.hostname or "",
        "PGPORT": str(parts.port),
        "PGUSER": parts.username or "",
        "PGPASSWORD": parts.password or "",
        "PGDATABASE": parts.path.removeprefix("/"),
    }


@asynccontextmanager
async def rewriting(database: Database) -> AsyncIterator[list[str]]:
    """Rewrite the busy tables one after the other all the time; yield the names of those that were."""
    rewritten: list[str] = []

    async def rewrite_all() -> None:
        async with session(database.url, "penstock busy tables") as connection:
            while True:
                for table in BUSY_TABLES:
                    if await busy_tables.rewrite(connection, table) is not None:
                        rewritten.append(table.name)
                await asyncio.sleep(0)

    task = asyncio.create_task(rewrite_all())
    try:
        yield rewritten
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def held_long_dump(tmp_path: Path) -> Path:
    """A directory with a pg_dump that starts the long dump, and ends it when the file `continue` exists.

    It stands for a database whose dump takes hours.
    """
    programs = tmp_path / "programs"
    programs.mkdir()
    wrapper = programs / "pg_dump"
    wrapper.write_text(
        f"""#!/bin/bash
if [[ "$*" == *rest.dump* ]]; then
  touch long_dump_begins
  until [ -e continue ]; do sleep 0.05; done
fi
exec {find_postgres_programs()}/pg_dump "$@"
"""
    )
    wrapper.chmod(0o755)
    return programs


async def test_busy_tables_are_rewritten_during_the_long_part_and_the_parts_agree(
    database: Database, postgres_url: str, tmp_path: Path, held_long_dump: Path
) -> None:
    queue = QueueUnderTest(database)
    pushed = 0
    is_dumped = False

    async def produce_and_consume() -> None:
        nonlocal pushed
        while not is_dumped:
            await queue.push("1", partition=f"p{pushed % 5}")
            await queue.ack(await queue.pop())
            pushed += 1

    variables = connection_variables(database.url)
    slowed = {**variables, "PATH": f"{held_long_dump}:{variables['PATH']}"}
    script = find_block("# dump_in_parts.sh")
    load = asyncio.create_task(produce_and_consume())
    async with rewriting(database) as rewritten, asyncio.TaskGroup() as tasks:

        async def are_some_pushed() -> bool:
            return pushed > 20

        await wait_until_async(are_some_pushed, 30, "messages are pushed")
        dump = tasks.create_task(run_script(script, tmp_path, slowed))

        async def is_in_long_part() -> bool:
            return (tmp_path / "long_dump_begins").exists() or dump.done()

        await wait_until_async(is_in_long_part, 30, "the long part begins")
        assert not dump.done()
        rewritten.clear()

        async def are_all_rewritten() -> bool:
            return set(rewritten) == {table.name for table in BUSY_TABLES}

        await wait_until_async(are_all_rewritten, 30, "the busy tables are rewritten during the long part")
        (tmp_path / "continue").touch()
    is_dumped = True
    await load

    async with new_database(postgres_url) as restored_url:
        restore = find_block("$restore rest.dump").split("createdb restored\n")[1].split("psql")[0]
        await run_script(
            restore.replace("--dbname=restored", f"--dbname={urlsplit(restored_url).path[1:]}"),
            tmp_path,
            variables,
        )
        restored = Database(restored_url, 1)
        try:
            [counts] = await restored.fetch(COUNTS)
        finally:
            await restored.close()
    assert 20 < counts["pushed"] <= pushed + 1
    assert counts["pushed"] - counts["finished"] in (0, 1)
    assert counts["counted_pushes"] == counts["pushed"]
    assert counts["counted_acks"] == counts["finished"]
