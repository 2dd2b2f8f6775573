"""The pipeline as a component of the platform: `python -m penstock.pipeline.pipeline_process`.

The platform has checked its servers and Java. So this process needs nothing of the command line, and
what it does not import is missing in none of the processes that are forked from it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from penstock.config import load_settings
from penstock.errors import PenstockError
from penstock.log_format import configure_logging
from penstock.pipeline.job import run

logger = logging.getLogger("penstock.pipeline")


class PandasRefusal(MetaPathFinder):
    """Makes `import pandas` fail in this process and its forks.

    Arrow imports pandas if it is installed. The pipeline converts nothing with it, and the import takes 25
    MB. Rebuilding days and the capacity report, which need it, run in processes of their own.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("The pipeline does not load pandas.", name=fullname)
        return None


def main() -> None:
    """Run with the settings of the environment. A PenstockError logs one line and sets the exit code."""
    sys.meta_path.insert(0, PandasRefusal())
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
