"""Log lines of Penstock's own processes, also when they fail."""

from __future__ import annotations

import logging
import re
import subprocess
import sys

from penstock.log_format import LINE_START, format_line

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
