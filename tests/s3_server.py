"""A local S3 server (moto) for tests of object stores."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError

from penstock.embedded.servers.ports import LOOPBACK, any_free_port
from tests.deadlines import deadline_s
from tests.waiting import wait_until

BUCKET = "penstock"
PACKAGES = Path(sys.prefix) / "moto"


@contextmanager
def running_s3_server() -> Iterator[dict[str, str]]:
    """Run the server with an empty bucket; yields the environment variables of its clients."""
    port = any_free_port()
    endpoint = f"http://{LOOPBACK}:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGES)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: create_bucket(endpoint), 30, "the S3 server creates a bucket")
        yield {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }
    finally:
        process.terminate()
        process.wait(deadline_s(10))


def create_bucket(endpoint: str) -> bool:
    request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
    # The server reads the region and the account from this header.
    request.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request")
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return bool(response.status == 200)
    except HTTPError as error:
        raise AssertionError(f"{error.code}: {error.read()[:300]!r}") from error
