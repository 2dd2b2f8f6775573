"""The process that `penstock up` migrates the stores in: `python -m penstock.broker.migrations_process`.

The modules and the memory that migrations need end with it; the supervisor runs as long as the platform.
"""

from __future__ import annotations

import asyncio
import logging
import sys

from penstock.broker import store_migrations
from penstock.config import load_settings
from penstock.errors import PenstockError
from penstock.log_format import configure_logging, format_line

logger = logging.getLogger("penstock.migrations")


def main() -> None:
    """Migrate once. The last line of the output says what was done, or what failed."""
    configure_logging(component="migrations")
    try:
        settings = load_settings()
        configure_logging(settings.log_level, settings.log_format, "migrations")
        applied = asyncio.run(store_migrations.migrate(settings))
    except PenstockError as error:
        logger.critical(error.detail)
        sys.exit(error.exit_code)
    summary = f"{len(applied)} applied" if applied else "up to date"
    print(format_line(logging.INFO, logger.name, summary), end="")  # whatever the log level


if __name__ == "__main__":
    main()
