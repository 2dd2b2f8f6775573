"""Back up a running platform under load, restore it elsewhere, and find all that was answered before."""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.config import Settings
from penstock.embedded.backup.backup_archive import BackupRefused, BackupUnusable
from penstock.embedded.backup.restore_backup import restore_backup
from penstock.embedded.backup.take_backup import take_backup
from penstock.embedded.servers.home_secrets import ensure_encryption_keys
from penstock.embedded.servers.ports import any_free_port
from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.component import running
from penstock.embedded.supervision.platform import build_environment
from penstock.embedded.supervision.service_components import BrokerService
from tests.e2e.test_commands import run_json
from tests.waiting import wait_until
from tests.whole_platform import RunningPlatform


def ignore_progress(step: str, done: int, total: int | None) -> None:
    pass


class Producer(threading.Thread):
    """Pushes numbers in order until it is stopped; `pushed` is how many were answered."""

    def __init__(self, platform: RunningPlatform, queue: str) -> None:
        super().__init__(daemon=True)
        self._platform, self._queue = platform, queue
        self.pushed = 0
        self.is_stopping = False

    def run(self) -> None:
        while not self.is_stopping:
            self._platform.push(self._queue, self.pushed)
            self.pushed += 1


@contextmanager
def restored_broker(home: Path) -> Iterator[str]:
    """Start PostgreSQL, Valkey and a broker on a restored home; yield the URL of the broker."""
    with ExitStack() as stack:
        postgres, valkey = Postgres(home, any_free_port()), Valkey(home, any_free_port())
        stack.enter_context(running(postgres))
        stack.enter_context(running(valkey))
        settings = Settings(
            home=home,
            port=any_free_port(),
            postgres_url=postgres.url,
            redis_url=valkey.url,
            clickhouse_url="http://127.0.0.1:1",
            encryption_keys=ensure_encryption_keys(home),
        )
        broker = BrokerService(settings, build_environment(settings))
        stack.enter_context(running(broker))
        yield broker.address


def pop_all(url: str, queue: str) -> list[Any]:
    payloads: list[Any] = []
    while True:
        response = httpx.get(
            f"{url}/api/v1/pop/queue/{queue}", params={"batch": 1000, "autoAck": "true"}, timeout=30
        )
        if response.status_code == 204 or not response.json()["messages"]:
            return payloads
        payloads += [message["data"] for message in response.json()["messages"]]


def test_a_backup_under_load_restores_all_that_was_answered_before(
    platform: RunningPlatform, queue: str, open_tmp_path: Path
) -> None:
    secret = f"{queue}-secret"
    options = {"queue": secret, "options": {"encryptionEnabled": True}}
    httpx.post(f"{platform.url}/api/v1/configure", json=options).raise_for_status()
    platform.push(secret, {"card": 4711})
    platform.enqueue(f"{queue}-run", "task", limit=2)
    producer = Producer(platform, queue)
    producer.start()
    try:
        wait_until(lambda: producer.pushed > 20, 30, "pushes are answered")
        answered = producer.pushed
        file = open_tmp_path / "backup.zip"
        document = run_json(platform, "backup", str(file))
    finally:
        producer.is_stopping = True
        producer.join()

    assert document["bytes"] == file.stat().st_size
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "the file has secrets"
    assert sorted(entry.name for entry in open_tmp_path.iterdir()) == ["backup.zip"], "nothing else stays"
    home = open_tmp_path / "restored"
    restore_backup(home, file, ignore_progress)
    with restored_broker(home) as url:
        payloads = pop_all(url, queue)
        assert len(payloads) >= answered
        assert payloads == list(range(len(payloads))), "each message once and in order, up to one moment"
        assert pop_all(url, secret) == [{"card": 4711}]
        run_queue = httpx.get(f"{url}/api/v1/run-queues/{queue}-run").json()
        assert run_queue["depth"] == 1

    # The home is stopped now. Its backup starts the servers for a moment.
    again = open_tmp_path / "again.zip"
    take_backup(Settings(home=home), again, ignore_progress)
    restore_backup(open_tmp_path / "restored again", again, ignore_progress)
    with pytest.raises(BackupRefused, match="not empty"):
        restore_backup(home, file, ignore_progress)
    with pytest.raises(BackupRefused, match="exists"):
        take_backup(Settings(home=home), again, ignore_progress)


def test_a_damaged_backup_is_refused_and_the_home_stays_empty(
    platform: RunningPlatform, open_tmp_path: Path
) -> None:
    file = open_tmp_path / "backup.zip"
    take_backup(Settings(home=platform.home), file, ignore_progress)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    home = open_tmp_path / "restored"
    with pytest.raises(BackupUnusable, match="damaged"):
        restore_backup(home, file, ignore_progress)
    file.write_bytes(b"no archive")
    with pytest.raises(BackupUnusable, match="no backup"):
        restore_backup(home, file, ignore_progress)
    assert not home.exists()
