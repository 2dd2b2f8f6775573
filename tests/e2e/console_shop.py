"""A small shop on a running platform, so that every page of the console has something to show."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tests.deadlines import deadline_s
from tests.waiting import wait_until
from tests.whole_platform import RunningPlatform

PARTITIONS = ("north", "south", "west")
DECLINED = "the bank declined the card"
UNKNOWN_ADDRESS = "no such address: 221b Baker Street"
RUNNING_TASKS = 5
INCIDENT_TIMEOUT_S = 90


@dataclass(frozen=True, slots=True)
class Shop:
    """The names of everything that the shop created."""

    url: str
    invoices: str
    renders: str
    paused: str
    message_id: str
    error_group: str
    incident_id: str


class Api:
    """Calls to the platform that must succeed."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=f"{url}/api/v1", timeout=deadline_s(30))

    def call(self, method: str, path: str, body: object = None, **params: str | int) -> Any:
        response = self.http.request(method, path, json=body, params=params)
        assert response.is_success, f"{method} {path}: {response.text}"
        return response.json() if response.content else None


def open_shop(platform: RunningPlatform, prefix: str) -> Shop:
    """Create queues, groups, failures, limits, notes, an alert with its incident, and a token."""
    api = Api(platform.url)
    invoices, renders, paused = f"{prefix}-invoices", f"{prefix}-renders", f"{prefix}-newsletter"
    sell(api, invoices)
    message_id = fail_some(api, invoices)
    render(platform, api, renders)
    platform.push(paused, *({"to": f"reader-{number}"} for number in range(40)))
    api.call("POST", f"/resources/queues/{paused}/pause")
    api.call("POST", "/annotations", {"text": "Release 2.4 deployed", "kind": "deploy"})
    api.call("POST", "/tokens", {"name": f"{prefix}-reader", "scopes": ["read"]})
    groups = api.call("GET", "/dlq/groups", queue=invoices)["groups"]
    error_group = next(group["errorGroup"] for group in groups if group["error"] == DECLINED)
    incident_id = watch_backlog(api, prefix, invoices)
    api.http.close()
    return Shop(platform.url, invoices, renders, paused, message_id, error_group, incident_id)


def sell(api: Api, queue: str) -> None:
    api.call(
        "POST", "/configure", {"queue": queue, "options": {"retryLimit": 1, "indexKeys": ["$.customer"]}}
    )
    orders = [
        {
            "queue": queue,
            "partition": PARTITIONS[number % 3],
            "payload": {"customer": f"customer-{number % 7}", "order": number, "total": 19 + number},
        }
        for number in range(90)
    ]
    api.call("POST", "/push", {"items": orders})


def fail_some(api: Api, queue: str) -> str:
    """Process some messages in two groups, and let others die. Return the id of a dead message."""
    for error in (None, DECLINED, UNKNOWN_ADDRESS, DECLINED):
        process(api, queue, "billing", error)
    process(api, queue, "reports", None)
    letters = api.call("GET", "/dlq", queue=queue)["messages"]
    return str(next(letter["id"] for letter in letters if letter["errorMessage"] == DECLINED))


def process(api: Api, queue: str, group: str, error: str | None) -> None:
    """Take a batch and acknowledge it. With an error, its messages fail until they are dead letters."""
    attempts = 1 if error is None else 2
    for _ in range(attempts):
        messages = api.call("GET", f"/pop/queue/{queue}", batch=6, consumerGroup=group)["messages"]
        status = "completed" if error is None else "failed"
        acknowledgments = [
            {
                "transactionId": message["transactionId"],
                "partitionId": message["partitionId"],
                "leaseId": message["leaseId"],
                "status": status,
                "error": error,
            }
            for message in messages
        ]
        api.call("POST", "/ack/batch", {"acknowledgments": acknowledgments, "consumerGroup": group})


def render(platform: RunningPlatform, api: Api, queue: str) -> None:
    """Fill a run queue up to its limit: some tasks run, the others wait."""
    platform.enqueue(queue, *({"picture": number} for number in range(30)), limit=RUNNING_TASKS)
    api.call("POST", f"/run-queues/{queue}/dequeue", {"limit": RUNNING_TASKS, "visibilityMs": 600_000})


def watch_backlog(api: Api, prefix: str, queue: str) -> str:
    """Create a rule that fires for the queue. Return the id of its incident."""
    rule = {
        "name": f"{prefix} backs up",
        "type": "BACKLOG",
        "queue": queue,
        "statistic": "max",
        "threshold": 10,
        "windowMinutes": 1,
    }
    api.call("POST", "/alert-rules", rule)

    def find_incident() -> str:
        incidents = api.call("GET", "/incidents")["incidents"]
        return next((incident["id"] for incident in incidents if incident["rule"] == rule["name"]), "")

    return wait_until(find_incident, INCIDENT_TIMEOUT_S, "the backlog opens an incident")


@contextmanager
def demo_load(platform: RunningPlatform) -> Iterator[None]:
    """Run the load of `penstock up --demo` beside the platform."""
    environment = {"PENSTOCK_HOME": str(platform.home), "PENSTOCK_PORT": str(platform.port)}
    process = subprocess.Popen([sys.executable, "-m", "penstock.cli.demo"], env={**os.environ, **environment})
    try:
        yield
    finally:
        process.terminate()
        process.wait(deadline_s(30))
