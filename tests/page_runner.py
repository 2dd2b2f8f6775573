"""Run the code blocks of a documentation page as a reader would.

| Block | What happens |
|---|---|
| any that starts with a comment that is a file name, such as `# worker.py` | it is saved |
| `sh` that starts with `# second terminal` | it runs in the background until that terminal runs another |
| other `sh` | it runs to its end, and must succeed |
| other `python` | it runs in the namespace of the page, with top-level `await` |
| `text` | each line appears in the output, sooner or later; `…` stands for any text |
| others, such as `console` | they are for reading only |
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from tests.deadlines import deadline_s
from tests.waiting import wait_until_async

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# ([\w.-]+\.(?:py|toml|sh))\n")
TERMINAL = re.compile(r"# (\w+) terminal\n")
COMMAND_TIMEOUT_S = 60
OUTPUT_TIMEOUT_S = 60


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str


def find_blocks(page: str) -> list[Block]:
    return [Block(*match) for match in BLOCK.findall(page)]


class PageRunner:
    """Runs the blocks of one page in a directory of its own.

    `replacements` are applied to every block, for example another port. Python blocks share `namespace`.
    """

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str],
        replacements: Mapping[str, str],
        namespace: dict[str, Any] | None = None,
    ) -> None:
        self._directory = directory
        self._replacements = replacements
        self._namespace = namespace if namespace is not None else {}
        self._output = directory / "output.txt"
        self._output.touch()
        self._terminals: dict[str, subprocess.Popen[bytes]] = {}
        programs = directory / "bin"
        programs.mkdir()
        for name, command in (
            ("python", sys.executable),
            ("penstock", f"{sys.executable} -m penstock.cli.main"),
        ):
            (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (programs / name).chmod(0o755)
        path = f"{programs}:{os.environ['PATH']}"
        self._environment = {**os.environ, **environment, "PATH": path, "PYTHONUNBUFFERED": "1"}

    async def run(self, page: Path) -> None:
        """Run all blocks in their order. Raises AssertionError with the output so far."""
        try:
            for block in find_blocks(page.read_text()):
                await self._run_block(self._replace(block))
        except AssertionError as failure:
            failure.add_note(f"Output of {page.name} so far:\n{self._output.read_text()}")
            raise
        finally:
            for terminal in list(self._terminals):
                self._stop(terminal)

    def _replace(self, block: Block) -> Block:
        text = block.text
        for printed, actual in self._replacements.items():
            text = text.replace(printed, actual)
        return Block(block.language, text)

    async def _run_block(self, block: Block) -> None:
        if file_name := FILE_NAME.match(block.text):
            (self._directory / file_name[1]).write_text(block.text)
        elif block.language == "sh":
            await self._run_commands(block.text)
        elif block.language == "python":
            await self._run_python(block.text)
        elif block.language == "text":
            for line in block.text.splitlines():
                await self._wait_for_line(line)

    async def _run_commands(self, text: str) -> None:
        if terminal := TERMINAL.match(text):
            self._stop(terminal[1])
            self._terminals[terminal[1]] = self._start(text)
            return
        process = self._start(text)
        try:
            exit_code = await asyncio.to_thread(process.wait, deadline_s(COMMAND_TIMEOUT_S))
        finally:
            _end_group(process)
        assert exit_code == 0, f"exit code {exit_code}:\n{text}"

    def _start(self, text: str) -> subprocess.Popen[bytes]:
        with self._output.open("ab") as output:
            return subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", text],
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _stop(self, terminal: str) -> None:
        if process := self._terminals.pop(terminal, None):
            _end_group(process)

    async def _run_python(self, text: str) -> None:
        code = compile(text, "<page>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            await eval(code, self._namespace)
        else:
            await asyncio.to_thread(self._execute, code)

    def _execute(self, code: CodeType) -> None:
        exec(code, self._namespace)

    async def _wait_for_line(self, line: str) -> None:
        words = [".*" if word == "…" else re.escape(word) for word in line.split()]
        pattern = re.compile(r"\s*".join(words) if "…" in line else r"\s+".join(words))

        async def is_printed() -> bool:
            return any(pattern.search(printed) for printed in self._output.read_text().splitlines())

        await wait_until_async(is_printed, OUTPUT_TIMEOUT_S, f"the commands print {line!r}")


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a shell and the programs that it started in the background."""
    try:
        os.killpg(process.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    finally:
        process.wait(deadline_s(COMMAND_TIMEOUT_S))
