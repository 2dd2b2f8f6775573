"""`--watch` and shell completion: the command as a process of its own, against a broker on a real socket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.cli.exit_codes import BrokerUnreachable
from tests.integration.cli import shared_broker
from tests.integration.cli.shared_broker import Commands
from tests.interrupts import accept_interrupts
from tests.waiting import wait_until_async

commands = shared_broker.commands
ENTRY = [
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'penstock'; from penstock.cli.entry import main; main()",
]


@asynccontextmanager
async def watching(commands: Commands, *words: str) -> AsyncIterator[Process]:
    """Run a command with `--watch`; it ends with the block, even if that fails."""
    process = await asyncio.create_subprocess_exec(
        *(*ENTRY, *words, "--url", commands.url, "--json", "--watch", "--interval", "0.1"),
        stdout=asyncio.subprocess.PIPE,
        preexec_fn=accept_interrupts,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()  # an exit is reported once all output is read


async def read_depths(process: Process) -> list[int]:
    """Return the depths in the next line of JSON."""
    assert process.stdout is not None
    return [queue["depth"] for queue in json.loads(await process.stdout.readline())["queues"]]


async def test_watch_prints_a_line_of_json_each_time_until_interrupted(commands: Commands) -> None:
    await commands.text("push", "watched", "1")
    async with watching(commands, "queues", "ls", "--search", "watched") as process:
        assert await read_depths(process) == [1]
        await commands.text("push", "watched", "2")
        while await read_depths(process) != [2]:
            pass
        process.send_signal(signal.SIGINT)
        await process.communicate()
        assert process.returncode == 0


async def test_watch_ends_with_the_first_error(commands: Commands) -> None:
    result = await commands.run("queues", "show", "no-such-queue", "--watch")
    assert result.exception is not None
    assert "Unknown queue" in str(result.exception)


async def complete(shell: str, url: str, home: Path, *words: str) -> str:
    """Return what the script of the shell gets for the last word."""
    text = " ".join(("penstock", *words))
    variables = {
        "bash": {"COMP_WORDS": text, "COMP_CWORD": str(len(words))},
        "zsh": {"_TYPER_COMPLETE_ARGS": text},
        "fish": {"_TYPER_COMPLETE_ARGS": text, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    process = await asyncio.create_subprocess_exec(
        *ENTRY,
        env={
            **os.environ,
            "PENSTOCK_HOME": str(home),
            "PENSTOCK_PORT": url.rpartition(":")[2],
            "_PENSTOCK_COMPLETE": f"complete_{shell}",
            **variables,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return output.decode().strip()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_names_of_queues_of_both_kinds_are_completed(
    commands: Commands, shell: str, tmp_path: Path
) -> None:
    await commands.text("push", "complete-orders", "1")
    await commands.text("push", "complete-renders", "1", "--kind", "run")
    await commands.text("push", "other", "1")

    async def complete_both() -> str:
        """Complete again if the broker took longer than a shell waits for it."""
        output = await complete(shell, commands.url, tmp_path, "queues", "show", "complete-")
        return output if "complete-orders" in output and "complete-renders" in output else ""

    assert "other" not in await wait_until_async(complete_both, 20, "the names of both queues")


async def test_error_groups_of_dead_letters_are_completed(commands: Commands, tmp_path: Path) -> None:
    await commands.text("push", "complete-dead", "1")
    receipt = (await commands.json("pop", "complete-dead"))["messages"][0]["receipt"]
    await commands.text("ack", receipt, "--dead", "--error", "the card is expired")
    [group] = await commands.json("dlq", "groups", "--queue", "complete-dead")

    async def complete_group() -> bool:
        prefix = group["errorGroup"][:6]
        output = await complete("bash", commands.url, tmp_path, "dlq", "resolve", prefix)
        return bool(output == group["errorGroup"])

    await wait_until_async(complete_group, 20, "the error group")


async def test_completion_without_a_broker_is_empty_and_silent(tmp_path: Path) -> None:
    assert await complete("bash", "http://127.0.0.1:1", tmp_path, "pop", "x") == ""


async def test_a_command_without_a_broker_ends_with_exit_code_3(tmp_path: Path) -> None:
    assert BrokerUnreachable.exit_code == 3
    process = await asyncio.create_subprocess_exec(
        *ENTRY, "queues", "ls", "--url", "http://127.0.0.1:1", stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert (process.returncode, errors.decode().count("\n")) == (3, 1)
