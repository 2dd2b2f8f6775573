"""Test that a reader process ends when the Spark process that started it was killed."""

from __future__ import annotations

import subprocess
import sys

import psutil

from tests.waiting import wait_until

READER_SCRIPT = """
from penstock.pipeline.source import redis_streams

def call_redis():
    print("called", flush=True)
    raise ConnectionRefusedError("no Redis here")

redis_streams._retry_while_unreachable(call_redis)
"""
SPARK_SCRIPT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {READER_SCRIPT!r}])
print(child.pid, flush=True)
child.wait()
"""


def test_a_reader_stops_waiting_for_redis_when_spark_was_killed() -> None:
    spark = subprocess.Popen([sys.executable, "-c", SPARK_SCRIPT], stdout=subprocess.PIPE, text=True)
    assert spark.stdout is not None
    reader = psutil.Process(int(spark.stdout.readline()))
    try:
        for _ in range(2):
            assert spark.stdout.readline() == "called\n"
        assert reader.is_running()
        spark.kill()
        spark.wait()
        wait_until(
            lambda: not reader.is_running() or reader.status() == psutil.STATUS_ZOMBIE, 30, "the reader ends"
        )
    finally:
        spark.kill()
        spark.stdout.close()
        if reader.is_running():
            reader.kill()
