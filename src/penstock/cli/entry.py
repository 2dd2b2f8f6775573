"""The entry point of the command `penstock`: says what to install if only the client is installed."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Exits with one line if its packages are missing."""
    try:
        from penstock.cli.main import main as run
    except ModuleNotFoundError as error:
        sys.exit(
            f"The command penstock needs the package {error.name}. "
            "Install Penstock with its server: pip install 'penstock-mq[server,pipeline,embedded]'."
        )
    run()
