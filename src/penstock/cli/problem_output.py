"""Show an error or a warning of a command: on the terminal, or in the log of a component."""

from __future__ import annotations

import logging
import os

from rich.console import Console
from rich.text import Text

from penstock.log_format import configure_logging


def show_error(text: str) -> None:
    """Print a red line to standard error; log it if `penstock up` runs this command as a component."""
    _show(text, logging.CRITICAL, "red")


def show_warning(text: str) -> None:
    """Print a yellow line that starts with `Warning:`, or log the text."""
    _show(text, logging.WARNING, "yellow", "Warning: ")


def _show(text: str, level: int, style: str, prefix: str = "") -> None:
    from penstock.embedded.supervision.process import MARK_VARIABLE  # slow to import

    if MARK_VARIABLE in os.environ:
        configure_logging()
        logging.getLogger("penstock.cli").log(level, text)
    else:
        Console(stderr=True, highlight=False, soft_wrap=True).print(Text(prefix + text, style=style))
