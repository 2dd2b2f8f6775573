"""The supervisor with the three real servers, in a process of its own, so that a test can kill it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from penstock.embedded.servers.clickhouse import ClickHouse
from penstock.embedded.servers.postgres import Postgres
from penstock.embedded.servers.valkey import Valkey
from penstock.embedded.supervision.supervisor import HomeLock, Supervisor, stop_orphans


def main() -> None:
    home = Path(sys.argv[1])
    postgres, valkey, clickhouse = map(int, sys.argv[2:])
    lock = HomeLock(home)
    print("ended", *stop_orphans(home), flush=True)
    parts = [Postgres(home, postgres), Valkey(home, valkey), ClickHouse(home, clickhouse)]
    supervisor = Supervisor(
        home, parts, "http://three-servers", lock, lambda _, words: print(words, flush=True)
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: supervisor.request_stop())
    supervisor.run()


if __name__ == "__main__":
    main()
