"""The Python programs in README.md run as printed; only the address of the broker is another one."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.integration.client.broker_server import run_broker
from tests.integration.databases import new_database
from tests.interrupts import accept_interrupts

README = Path(__file__).parents[3] / "README.md"
PRINTED_URL = "http://127.0.0.1:7480"
EXPECTED_LINES = ("message {'greeting': 'hi'}", "task {'video': 7}")


def find_programs() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def test_every_program_of_the_readme_is_tested() -> None:
    programs = find_programs()
    assert len(programs) == len(EXPECTED_LINES)
    assert all(PRINTED_URL in program for program in programs)


@pytest.mark.parametrize(("number", "expected_line"), list(enumerate(EXPECTED_LINES)))
async def test_a_program_of_the_readme_runs_as_printed(
    number: int, expected_line: str, postgres_url: str, redis_url: str, template: str
) -> None:
    async with (
        new_database(postgres_url, template) as database,
        run_broker(database, redis_url=redis_url) as url,
    ):
        program = find_programs()[number].replace(PRINTED_URL, url)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-u", "-c", program),
            stdout=asyncio.subprocess.PIPE,
            preexec_fn=accept_interrupts,
        )
        assert process.stdout is not None
        try:
            line = await process.stdout.readline()
            assert line.decode().strip() == expected_line
            process.send_signal(signal.SIGINT)
            await process.wait()
            assert process.returncode == -signal.SIGINT
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
