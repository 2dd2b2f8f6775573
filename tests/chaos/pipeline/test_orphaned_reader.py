"""What waits for Redis on behalf of a Spark that was killed does not wait for ever."""

from __future__ import annotations

import subprocess
import sys

import psutil

from tests.waiting import wait_until

WAITS = """
from penstock.pipeline import source

def ask():
    print("asked", flush=True)
    raise ConnectionRefusedError("no Redis here")

source._persistently(ask)
"""
SPARK = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {WAITS!r}])
print(child.pid, flush=True)
child.wait()
"""


def test_a_reader_whose_spark_was_killed_gives_up_on_redis() -> None:
    spark = subprocess.Popen([sys.executable, "-c", SPARK], stdout=subprocess.PIPE, text=True)
    assert spark.stdout is not None
    reader = psutil.Process(int(spark.stdout.readline()))
    try:
        for _ in range(2):
            assert spark.stdout.readline() == "asked\n"
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
