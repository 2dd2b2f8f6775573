"""A program that supervises the three real servers, so that a test can kill the supervisor."""

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
    print("stopped", *stop_orphans(home), flush=True)
    components = [Postgres(home, postgres), Valkey(home, valkey), ClickHouse(home, clickhouse)]
    supervisor = Supervisor(
        home, components, "http://three-servers", lock, lambda _, message: print(message, flush=True)
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: supervisor.request_stop())
    supervisor.run()


if __name__ == "__main__":
    main()
