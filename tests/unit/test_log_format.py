"""Log lines of Penstock's own processes, also when they fail."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys

from penstock.log_format import LINE_START, JsonLogFormatter, RequestIds, format_line, request_ids

FAILING_PROGRAM = """
import logging, threading, warnings
from penstock.log_format import configure_logging

configure_logging("warning")
logging.getLogger("orders").info("not shown")
logging.getLogger("orders").error("two\\nlines")
warnings.warn("an old option")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
raise ValueError("the end")
"""


def test_a_line_has_time_level_and_logger() -> None:
    line = format_line(logging.WARNING, "penstock.supervisor", "valkey does not answer")
    assert re.fullmatch(rf"{LINE_START}valkey does not answer\n", line)
    assert " WARNING penstock.supervisor: " in line


def test_all_output_of_a_process_that_fails_has_time_and_level() -> None:
    result = subprocess.run(
        [sys.executable, "-c", FAILING_PROGRAM], capture_output=True, text=True, check=False
    )
    lines = result.stderr.splitlines()
    assert [line for line in lines if not re.match(rf"{LINE_START}|    ", line)] == []
    records = [re.sub(LINE_START, "", line) for line in lines if not line.startswith(" ")]
    assert records[0] == "two"
    assert "an old option" in records[1]
    assert records[2:] == ["Uncaught exception in thread Thread-1 (<lambda>)", "Uncaught exception"]
    assert lines[-1] == "    ValueError: the end"
    assert result.returncode == 1


def test_every_line_of_a_process_that_fails_is_a_json_object() -> None:
    result = subprocess.run(
        [sys.executable, "-c", FAILING_PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PENSTOCK_LOG_FORMAT": "json"},
    )
    records = [json.loads(line) for line in result.stderr.splitlines()]
    assert [record["message"] for record in records[:1]] == ["two\nlines"]
    assert all({"time", "level", "component", "logger", "message"} <= record.keys() for record in records)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", records[0]["time"])
    assert records[-1]["level"] == "CRITICAL"
    assert records[-1]["exception"].endswith("ValueError: the end")


def test_a_line_names_the_request_and_its_trace() -> None:
    record = logging.LogRecord("penstock.api", logging.INFO, "", 0, "%s done", ("push",), None)
    token = request_ids.set(RequestIds("r-1", "ab" * 16))
    try:
        fields = json.loads(JsonLogFormatter("broker").format(record))
    finally:
        request_ids.reset(token)
    assert (fields["component"], fields["message"]) == ("broker", "push done")
    assert (fields["requestId"], fields["traceId"]) == ("r-1", "ab" * 16)
    assert "requestId" not in json.loads(JsonLogFormatter().format(record))
