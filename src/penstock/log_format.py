"""The log lines of Penstock's own processes: time, level, logger and message.

The time is UTC in ISO 8601 with milliseconds. Further lines of a record, such as a traceback, are indented:
every line that starts with a time starts a record.
"""

from __future__ import annotations

import logging
import logging.config
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

logger = logging.getLogger("penstock")

LINE_START = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w.]+: "
"""A pattern of what precedes the message of a record."""


class LogFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record).rstrip().replace("\n", "\n    ")
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return f"{time.removesuffix('+00:00')}Z {record.levelname} {record.name}: {text}"


def format_line(level: int, name: str, message: str) -> str:
    """Return the log line of a message, for a process that writes to a file of its own."""
    record = logging.LogRecord(name, level, "", 0, message, (), None)
    return LogFormatter().format(record) + "\n"


def logging_options(level: str) -> dict[str, Any]:
    """Return the options of `logging.config.dictConfig`: log to standard error from this level on."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": LogFormatter}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "loggers": {"httpx": {"level": "WARNING"}},  # it would log every request
        "root": {"level": level.upper(), "handlers": ["stderr"]},
    }


def configure_logging(level: str = "info") -> None:
    """Log to standard error, also warnings of libraries and exceptions that end the process or a thread."""
    logging.config.dictConfig(logging_options(level))
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread


def _log_uncaught(
    error_type: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if issubclass(error_type, KeyboardInterrupt):
        sys.__excepthook__(error_type, error, traceback)
        return
    logger.critical("Uncaught exception", exc_info=(error_type, error, traceback))


def _log_uncaught_in_thread(details: threading.ExceptHookArgs) -> None:
    if details.exc_value is not None and not isinstance(details.exc_value, SystemExit):
        logger.error(
            "Uncaught exception in thread %s",
            details.thread.name if details.thread else "?",
            exc_info=details.exc_value,
        )
