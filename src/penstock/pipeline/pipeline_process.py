"""The pipeline as a component of the platform: `python -m penstock.pipeline.pipeline_process`.

The platform has checked its servers and Java. So this process needs nothing of the command line, and
what it does not import is missing in none of the processes that are forked from it.
"""

from __future__ import annotations

import logging
import sys

from penstock.config import load_settings
from penstock.errors import PenstockError
from penstock.log_format import configure_logging
from penstock.pipeline.job import run
from penstock.pipeline.pandas_refusal import refuse_pandas

logger = logging.getLogger("penstock.pipeline")


def main() -> None:
    """Run with the settings of the environment. A PenstockError logs one line and sets the exit code."""
    refuse_pandas()
    configure_logging(component="pipeline")
    try:
        settings = load_settings()
        configure_logging(settings.log_level, settings.log_format, "pipeline")
        run(settings)
    except PenstockError as error:
        logger.critical(error.detail)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
