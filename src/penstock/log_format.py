"""The log lines of Penstock's own processes: time, level, logger and message, as text or as JSON.

The time is UTC in ISO 8601 with milliseconds. In text, further lines of a record, such as a traceback, are
indented: every line that starts with a time starts a record. In JSON, every line is an object.
"""

from __future__ import annotations

import json
import logging
import logging.config
import os
import sys
import threading
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, NamedTuple

from penstock.trace_context import TraceContext

logger = logging.getLogger("penstock")

LINE_START = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w.]+: "
"""A pattern of what precedes the message of a record."""


FORMAT_VARIABLE = "PENSTOCK_LOG_FORMAT"
"""Processes read it before they have settings, and those without settings read nothing else."""
JSON = "json"


class RequestIds(NamedTuple):
    """What a log line says about the request that it belongs to."""

    request_id: str
    trace_id: str | None = None
    trace_context: TraceContext | None = None
    """The whole `traceparent` of the request."""


request_ids: ContextVar[RequestIds | None] = ContextVar("request_ids", default=None)
"""The ids of the request that the current task handles."""


class LogFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record).rstrip().replace("\n", "\n    ")
        return f"{_format_time(record)} {record.levelname} {record.name}: {text}"


class JsonLogFormatter(logging.Formatter):
    """One JSON object per line. Ids and the exception are present if the record has them."""

    def __init__(self, component: str = "penstock") -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _format_time(record),
            "level": record.levelname,
            "component": self._component,
            "logger": record.name,
            "message": record.getMessage(),
        }
        ids = request_ids.get()
        if ids is not None:
            fields["requestId"] = ids.request_id
            if ids.trace_id is not None:
                fields["traceId"] = ids.trace_id
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def _format_time(record: logging.LogRecord) -> str:
    time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return f"{time.removesuffix('+00:00')}Z"


def selected_format(log_format: str | None = None) -> str:
    """Return the format of the settings, else of the environment, else text."""
    return log_format or os.environ.get(FORMAT_VARIABLE) or "text"


def format_line(level: int, name: str, message: str) -> str:
    """Return the log line of a message, for a process that writes to a file of its own."""
    record = logging.LogRecord(name, level, "", 0, message, (), None)
    component = name.rpartition(".")[2]
    formatter = JsonLogFormatter(component) if selected_format() == JSON else LogFormatter()
    return formatter.format(record) + "\n"


def logging_options(level: str, log_format: str | None = None, component: str = "penstock") -> dict[str, Any]:
    """Return the options of `logging.config.dictConfig`: log to standard error from this level on."""
    formatter: dict[str, Any] = {"()": LogFormatter}
    if selected_format(log_format) == JSON:
        formatter = {"()": JsonLogFormatter, "component": component}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": formatter},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "loggers": {"httpx": {"level": "WARNING"}},  # it would log every request
        "root": {"level": level.upper(), "handlers": ["stderr"]},
    }


def configure_logging(
    level: str = "info", log_format: str | None = None, component: str = "penstock"
) -> None:
    """Log to standard error, also warnings of libraries and exceptions that end the process or a thread.

    `component` is the part of the platform that JSON lines name.
    """
    logging.config.dictConfig(logging_options(level, log_format, component))
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
