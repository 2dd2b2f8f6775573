"""Start the Python process that plans a streaming query: connect to Spark first, import PySpark afterwards.

Spark waits ten seconds for this process to connect, and no setting changes that. On a busy machine the import
of PySpark alone takes longer: the query fails at every start ("Python worker failed to connect back"). All
other Python processes come from Spark's daemons, which import before Spark waits for them.

Until it is connected, this module may import nothing that takes long to load.
"""

from __future__ import annotations

import os
import shlex
import socket
import struct
import sys
from pathlib import Path
from typing import IO, cast

from penstock.pipeline.fork_server import DAEMON, SOURCE_RUNNER, ForkServer

_LENGTH = struct.Struct("!i")


def write_launcher(directory: Path, server: ForkServer | None = None) -> Path:
    """Write a program that Spark can use as its Python: it asks the server for a fork while the server runs.

    Otherwise it starts a Python, another one for the process that plans. Spark puts an archive of PySpark
    first on the path of its Python processes. Python compiles modules of an archive at every import, which
    doubles the CPU time of a start; so they import the installed PySpark.
    Returns this Python itself if programs in the directory cannot be executed.
    """
    python = shlex.quote(sys.executable)
    program = directory / "python"
    lines = ["#!/bin/sh", f"export PYTHONPATH={shlex.quote(os.environ.get('PYTHONPATH', ''))}"]
    if server is not None:
        exit_pipe = f"{shlex.quote(str(directory))}/exit-$$"
        lines += [
            f'case "$2" in {DAEMON}|{SOURCE_RUNNER})',
            # A process that has ended but was not collected yet has no program.
            f"if [ -e /proc/{server.pid}/exe ] && mkfifo {exit_pipe}; then",
            # The redirections below replace the standard streams; the server takes these copies.
            "exec 3<&0 4>&1 5>&2",
            f"echo $$ > {shlex.quote(str(server.requests))}",
            f"read -r code < {exit_pipe} && exit $code",
            "exit 1",
            "fi;; esac",
        ]
    lines += [f'case "$2" in {SOURCE_RUNNER}) exec {python} -m {__name__} "$2";; esac', f'exec {python} "$@"']
    program.write_text("\n".join(lines) + "\n")
    program.chmod(0o700)
    return program if os.access(program, os.X_OK) else Path(sys.executable)


def connect_to_spark() -> IO[bytes]:
    """Connect to the Spark process that started this one, authenticate, and send the process id."""
    host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "").lower() == "true" else "127.0.0.1"
    connection = socket.create_connection((host, int(os.environ["PYTHON_WORKER_FACTORY_PORT"])))
    stream = cast("IO[bytes]", connection.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", "65536"))))
    secret = os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode()
    stream.write(_LENGTH.pack(len(secret)) + secret)
    stream.flush()
    [length] = _LENGTH.unpack(stream.read(_LENGTH.size))
    reply = stream.read(length)
    if reply != b"ok":
        raise ConnectionError(f"Spark refused the connection of its Python process: {reply!r}")
    stream.write(_LENGTH.pack(os.getpid()))
    stream.flush()
    return stream


def main() -> None:
    """Plan the batches of one query, until Spark ends the connection."""
    with connect_to_spark() as stream:
        from penstock.log_format import configure_logging

        configure_logging(os.environ.get("PENSTOCK_LOG_LEVEL", "info"), component="pipeline")
        from pyspark.sql.streaming import python_streaming_source_runner

        python_streaming_source_runner.main(stream, stream)


if __name__ == "__main__":
    main()
