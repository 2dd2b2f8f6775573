"""PgBouncer in transaction mode is refused with one line before a command uses it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from penstock.durable.dead_peers import SESSION_SETTINGS
from penstock.durable.postgres_probe import PostgresProbe
from penstock.embedded.servers.ports import any_free_port
from penstock.errors import ServerUnusable
from tests.deadlines import deadline_s
from tests.waiting import wait_until

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
NOBODY = 65534

OPTIONS = "extra_float_digits,search_path,jit,enable_seqscan,plan_cache_mode"
NETWORK_OPTIONS = ",".join(SESSION_SETTINGS)


@pytest.fixture(
    params=["", OPTIONS, f"{OPTIONS},{NETWORK_OPTIONS}"], ids=["no option", "usual options", "all options"]
)
def pooled_url(request: pytest.FixtureRequest, postgres_url: str, open_tmp_path: Path) -> Iterator[str]:
    """The URL of a PgBouncer in front of the PostgreSQL of the tests. It ignores some options of clients."""
    if PROGRAM is None:
        pytest.skip("PgBouncer is not installed; run tools/test_program.sh pgbouncer to include its test")
    url = urlsplit(postgres_url)
    port = any_free_port()
    users = open_tmp_path / "users.txt"
    users.write_text(f'"{url.username}" "{url.password}"\n')
    configuration = open_tmp_path / "pgbouncer.ini"
    configuration.write_text(
        f"""[databases]
* = host=127.0.0.1 port={url.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = transaction
ignore_startup_parameters = {request.param}
"""
    )
    process = subprocess.Popen(
        [PROGRAM, str(configuration)],
        user=NOBODY if os.geteuid() == 0 else None,
        cwd="/",
        stderr=subprocess.DEVNULL,
    )
    pooled = postgres_url.replace(f":{url.port}/", f":{port}/")

    async def can_connect() -> bool:
        await (await asyncpg.connect(pooled)).close()
        return True

    try:
        wait_until(lambda: asyncio.run(can_connect()), 20, "PgBouncer starts")
        yield pooled
    finally:
        process.terminate()
        process.wait(deadline_s(20))


def test_a_connection_pooler_is_refused_and_the_line_says_what_to_do(pooled_url: str) -> None:
    for _ in range(2):  # the second client meets the prepared statements of the first one
        probe = PostgresProbe(pooled_url)
        try:
            with pytest.raises(ServerUnusable) as caught:
                probe.check()
        finally:
            probe.close()
        assert caught.value.detail.startswith("PENSTOCK_POSTGRES_URL: ")
        assert "connection pooler such as PgBouncer" in caught.value.detail
        assert "Name PostgreSQL itself" in caught.value.detail
