"""The README's alert on the whole platform: a backlog is notified within a minute, and its end as well."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
from standardwebhooks import Webhook

from penstock.embedded.supervision.process import command_words
from tests.deadlines import deadline_s
from tests.integration.alerts.delivery.http_receiver import HttpReceiver, receive_http
from tests.waiting import wait_until_async
from tests.whole_platform import ALERT_INTERVAL_S, LOOPBACK_NETWORK, RunningPlatform

README = Path(__file__).parents[2] / "README.md"
NOTICE_TIMEOUT_S = 60
RESOLVE_TIMEOUT_S = 150
"""The rule looks back one minute, so a drained queue resolves that much later."""

BACKLOG = 12
ALERTS_MODULE = "penstock.alerts.alerts_process"
PENSTOCK = (sys.executable, "-m", "penstock.cli.main")


async def test_the_alert_of_the_readme_fires_once_and_resolves(
    platform: RunningPlatform, queue: str, tmp_path: Path
) -> None:
    async with receive_http() as receiver, second_alerts_process(platform) as second_process:
        secret = await follow_readme(platform, receiver, queue, tmp_path)

        await asyncio.to_thread(platform.push, queue, *range(BACKLOG))
        opened = await wait_for_event(receiver, "alert.opened", NOTICE_TIMEOUT_S)
        assert (opened["ruleName"], opened["queues"][0]["name"]) == ("hello backs up", queue)
        assert opened["queues"][0]["value"] == BACKLOG

        await kill_alerts_component(platform)
        second_process.terminate()  # the restarted component has to do the rest
        await asyncio.to_thread(drain, platform, queue)
        resolved = await wait_for_event(receiver, "alert.resolved", RESOLVE_TIMEOUT_S)

    assert resolved["incidentId"] == opened["incidentId"]
    assert [request.json["type"] for request in receiver.requests] == ["alert.opened", "alert.resolved"]
    for request in receiver.requests:
        Webhook(secret).verify(request.body, request.headers)


async def follow_readme(
    platform: RunningPlatform, receiver: HttpReceiver, queue: str, directory: Path
) -> str:
    """Run the commands of the README with the test's queue and receiver. Return the signing secret."""
    text = README.read_text()
    rule = re.search(r"^```toml\n(\[\[rule\]\].*?)^```", text, re.MULTILINE | re.DOTALL)
    assert rule is not None, "the README shows no alert rule"
    (directory / "rules.toml").write_text(rule[1].replace('"hello"', f'"{queue}"'))
    add_channel, apply, list_rules = re.findall(r"^penstock (alerts .*)$", text, re.MULTILINE)

    url = f"http://127.0.0.1:{receiver.port}/hook"
    channel = await run_json(platform, re.sub(r"https://\S+", url, add_channel), directory)
    [change] = await run_json(platform, apply, directory)
    assert change["action"] == "create"
    assert [listed["queue"] for listed in await run_json(platform, list_rules, directory)] == [queue]
    return str(channel["signingSecret"])


async def run_json(platform: RunningPlatform, command: str, directory: Path) -> Any:
    process = await asyncio.create_subprocess_exec(
        *(*PENSTOCK, *shlex.split(command), "--json"),
        cwd=directory,
        env={**os.environ, "PENSTOCK_HOME": str(platform.home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(output)


@asynccontextmanager
async def second_alerts_process(platform: RunningPlatform) -> AsyncIterator[psutil.Popen]:
    """Run `penstock alerts run` besides the platform's component."""
    environment = {
        "PENSTOCK_HOME": str(platform.home),
        "PENSTOCK_ALERT_PRIVATE_NETWORKS": LOOPBACK_NETWORK,
        "PENSTOCK_ALERT_INTERVAL_S": str(ALERT_INTERVAL_S),
    }
    process = psutil.Popen([*PENSTOCK, "alerts", "run"], env={**os.environ, **environment})
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(deadline_s(30))


async def wait_for_event(receiver: HttpReceiver, event_type: str, timeout_s: float) -> dict[str, Any]:
    """Return the data of the first webhook of this type."""

    async def find_event() -> dict[str, Any] | None:
        events = [request.json for request in receiver.requests]
        return next((event["data"] for event in events if event["type"] == event_type), None)

    return await wait_until_async(find_event, timeout_s, f"{event_type} arrives") or {}


async def kill_alerts_component(platform: RunningPlatform) -> None:
    """Kill the component and wait until the supervisor has started another process."""
    [killed] = find_alerts_processes(platform)
    killed.send_signal(signal.SIGKILL)

    async def is_restarted() -> bool:
        return any(process.pid != killed.pid for process in find_alerts_processes(platform))

    await wait_until_async(is_restarted, 60, "the supervisor restarts the component")


def find_alerts_processes(platform: RunningPlatform) -> list[psutil.Process]:
    processes = []
    for process in platform.list_processes():
        try:
            command = command_words(process)
        except psutil.NoSuchProcess:
            continue
        if ALERTS_MODULE in command:
            processes.append(process)
    return processes


def drain(platform: RunningPlatform, queue: str) -> None:
    while messages := platform.pop(queue):
        for message in messages:
            platform.ack(message)
