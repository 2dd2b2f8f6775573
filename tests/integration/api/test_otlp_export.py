"""Spans and metrics of a broker process and of a client, as an OpenTelemetry collector receives them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from tests.deadlines import deadline_s
from tests.integration.api.test_server import environment, serve, wait_for_workers
from tests.integration.client import traced_program
from tests.integration.client.traced_program import SECRET
from tests.otlp_receiver import CLIENT, CONSUMER, PRODUCER, SERVER, OtlpReceiver, running_receiver
from tests.waiting import wait_until

__all__ = ["environment"]

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CONTEXT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


def exporting_to(endpoint: str) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_METRIC_EXPORT_INTERVAL": "500",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }


def run_program(url: str, environment: dict[str, str]) -> list[str]:
    """Run the program that pushes and consumes; return the modules of OpenTelemetry that it loaded."""
    result = subprocess.run(
        [sys.executable, traced_program.__file__, url],
        env=environment,
        capture_output=True,
        text=True,
        timeout=deadline_s(60),
        check=False,
    )
    assert result.returncode == 0, result.stderr
    modules: list[str] = json.loads(result.stdout.splitlines()[-1])
    return modules


def test_a_trace_leads_from_the_push_to_its_handler(environment: dict[str, str], tmp_path: Path) -> None:
    with running_receiver() as receiver:
        environment |= exporting_to(receiver.endpoint)
        url = f"http://127.0.0.1:{environment['PENSTOCK_PORT']}"
        with serve(environment, tmp_path / "serve.log"):
            wait_for_workers(tmp_path / "serve.log", 1)
            run_program(url, environment)
            headers = {"traceparent": CONTEXT}
            assert httpx.get(f"{url}/api/v1/messages/search?text={SECRET}", headers=headers).is_success
            check_metrics(receiver)
        # Both processes have ended, so all of their spans have arrived.
        check_first_attempt_and_retry(receiver)
        check_batches(receiver)
        check_tasks(receiver)
        [search] = receiver.find("GET /api/v1/messages/search")
        assert (search.trace_id, search.parent_id) == (TRACE_ID, "b7ad6b7169203331")
        assert not any(SECRET.encode() in body for body in receiver.bodies)


def check_first_attempt_and_retry(receiver: OtlpReceiver) -> None:
    [push] = receiver.find("push orders")
    [served_push] = [span for span in receiver.find("POST /api/v1/push") if span.parent_id == push.span_id]
    assert (push.kind, push.parent_id, push.service) == (PRODUCER, "", "penstock-client")
    assert (served_push.kind, served_push.service) == (SERVER, "penstock-broker")
    assert served_push.trace_id == push.trace_id
    assert served_push.attributes["messaging.destination.name"] == "orders"
    assert served_push.attributes["http.response.status_code"] == 201

    first, retry = receiver.find("process orders")
    assert (first.kind, first.trace_id, first.parent_id) == (CONSUMER, push.trace_id, push.span_id)
    assert (first.links, first.is_error) == ([], True)
    assert first.attributes["error.type"] == "ValueError"
    assert (retry.kind, retry.parent_id, retry.links) == (CONSUMER, "", [push.span_id])
    assert retry.trace_id != push.trace_id
    assert (retry.attributes["penstock.message.retry_count"], retry.is_error) == (1, False)

    acks = receiver.find("ack orders")
    assert [ack.links for ack in acks] == [[push.span_id], [push.span_id]]
    served_acks = receiver.find("POST /api/v1/ack/batch")
    assert {ack.span_id for ack in acks} <= {span.parent_id for span in served_acks}
    pops = receiver.find("GET /api/v1/pop/queue/{queue}")
    assert {"orders", "batches"} == {pop.attributes["messaging.destination.name"] for pop in pops}


def check_batches(receiver: OtlpReceiver) -> None:
    [push] = receiver.find("push batches")
    [process] = receiver.find("process batches")
    assert push.attributes["messaging.batch.message_count"] == 2
    assert (process.parent_id, process.links) == ("", [push.span_id, push.span_id])
    assert process.attributes["messaging.batch.message_count"] == 2

    created = receiver.find("create buffered")
    [flush] = receiver.find("push buffered")
    assert [span.kind for span in created] == [PRODUCER, PRODUCER]
    assert (flush.kind, flush.links) == (CLIENT, [span.span_id for span in created])


def check_tasks(receiver: OtlpReceiver) -> None:
    [enqueue] = receiver.find("enqueue mails")
    [process] = receiver.find("process mails")
    assert (enqueue.kind, process.kind) == (PRODUCER, CONSUMER)
    assert (process.trace_id, process.parent_id) == (enqueue.trace_id, enqueue.span_id)
    [served] = receiver.find("POST /api/v1/run-queues/{queue}/tasks")
    assert served.parent_id == enqueue.span_id


def check_metrics(receiver: OtlpReceiver) -> None:
    def pushed() -> bool:
        points = receiver.points["penstock_requests"]
        return any(point.attributes == {"operation": "push"} and point.value == 3 for point in points)

    wait_until(pushed, 20, "the pushes are exported")
    depths = receiver.points["penstock_queue_depth"]
    assert {"organization", "queue", "group"} <= depths[-1].attributes.keys()
    sent = {
        point.attributes["messaging.destination.name"]: point.value
        for point in receiver.points["messaging.client.sent.messages"]
    }
    assert sent == {"orders": 1, "batches": 2, "buffered": 2, "mails": 1}
    assert "messaging.process.duration" in receiver.points


def test_a_request_is_a_child_of_its_traceparent(environment: dict[str, str], tmp_path: Path) -> None:
    with running_receiver() as receiver:
        url = f"http://127.0.0.1:{environment['PENSTOCK_PORT']}/api/v1"
        with serve(environment | exporting_to(receiver.endpoint), tmp_path / "serve.log"):
            wait_for_workers(tmp_path / "serve.log", 1)
            for number in range(2):  # the second head is cached unless it has a context
                item = {"queue": "q", "payload": number}
                headers = {"traceparent": CONTEXT} if number == 0 else {}
                assert httpx.post(f"{url}/push", json={"items": [item]}, headers=headers).status_code == 201
            assert httpx.post(f"{url}/ack", json={}).status_code == 422
        traced, untraced = receiver.find("POST /api/v1/push")
        assert (traced.trace_id, traced.parent_id) == (TRACE_ID, "b7ad6b7169203331")
        assert untraced.parent_id == ""
        assert untraced.trace_id != TRACE_ID
        [refused] = receiver.find("POST /api/v1/ack")
        assert (refused.attributes["http.response.status_code"], refused.is_error) == (422, False)
        assert refused.attributes["error.type"] == "invalid_request"


@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:1"])
def test_queues_work_without_an_export_and_without_its_collector(
    environment: dict[str, str], tmp_path: Path, endpoint: str | None
) -> None:
    """Without an endpoint, no process loads OpenTelemetry's SDK, and the client not even its API."""
    output = tmp_path / "serve.log"
    if endpoint is not None:
        environment |= exporting_to(endpoint)
    with serve(environment, output) as broker:
        wait_for_workers(output, 1)
        modules = run_program(f"http://127.0.0.1:{environment['PENSTOCK_PORT']}", environment)
        assert bool(modules) == (endpoint is not None)
        assert loads_sdk(broker) == (endpoint is not None)
        if endpoint is not None:
            wait_until(lambda: "Cannot export spans" in output.read_text(), 30, "the log names the problem")
    for content in ("spans", "metrics"):
        expected = 0 if endpoint is None else 1
        assert output.read_text().count(f"Cannot export {content}") == expected, output.read_text()
    assert "Traceback" not in output.read_text()


def loads_sdk(broker: psutil.Process) -> bool:
    """Whether a process has loaded Protobuf's library, which nothing but the exporter needs there."""
    return any("_upb" in mapping.path for mapping in broker.memory_maps())
