"""The hot routes in the OpenAPI document: they bypass the framework, so they are described here."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI

from penstock.api.schemas import message_bodies

PROBLEM = {
    "description": "problem details (RFC 9457); `error` repeats `detail`",
    "content": {"application/problem+json": {"schema": {"type": "object"}}},
}


def add_hot_routes(app: FastAPI) -> None:
    """Make `app.openapi()` tell of the hot routes too."""
    generated = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = generated()
            paths, components = _hot_routes()
            document["paths"].update(paths)
            document.setdefault("components", {}).setdefault("schemas", {}).update(components)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _hot_routes() -> tuple[dict[str, Any], dict[str, Any]]:
    types = [
        message_bodies.PushBody,
        list[message_bodies.PushItemResult],
        message_bodies.PopResponse,
        message_bodies.AckBody,
        message_bodies.AckBatchBody,
        list[message_bodies.AckResult],
        message_bodies.ExtendBody,
        message_bodies.ExtendResponse,
        message_bodies.TransactionBody,
        message_bodies.TransactionResponse,
    ]
    shapes, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    push, pushed, popped, ack, ack_batch, acked, extend, extended, transaction, done = shapes
    pop = {
        "tags": ["messages"],
        "summary": "Lease the next messages",
        "parameters": [
            _query("batch", "integer", "how many messages at most", 1),
            _query("partitions", "integer", "from how many partitions at most", 1),
            _query("consumerGroup", "string", "who consumes; queue mode if left out", None),
            _query("wait", "boolean", "wait for the first one", False),
            _query("timeout", "integer", "how long at most, in ms", 30_000),
            _query("autoAck", "boolean", "take them for good, without a lease", False),
            _query("subscriptionMode", "string", "where a new group starts: all or new", "all"),
            _query("subscriptionFrom", "string", "or at a moment: now, or a time in ISO 8601", None),
        ],
        "responses": {"200": _json("messages under a lease", popped), "204": {"description": "none waiting"}}
        | {"422": PROBLEM, "503": PROBLEM},
    }
    of_any = [_query(name, "string", f"the queues' {name}", None) for name in ("namespace", "task")]
    lost = {"409": PROBLEM}
    return {
        "/api/v1/push": _post(
            "Append messages, in order within each partition",
            push,
            "one result per item, in order",
            pushed,
            201,
        ),
        "/api/v1/pop": {"get": _with(pop, of_any, "Lease the next messages of whichever queue has some")},
        "/api/v1/pop/queue/{queue}": {"get": _with(pop, [_path("queue")], "Lease the next messages")},
        "/api/v1/pop/queue/{queue}/partition/{partition}": {
            "get": _with(
                pop, [_path("queue"), _path("partition")], "Lease the next messages of one partition"
            )
        },
        "/api/v1/ack": _post(
            "Settle one message under its lease", ack, "what became of it", acked, errors=lost
        ),
        "/api/v1/ack/batch": _post("Settle messages, each on its own", ack_batch, "one result each", acked),
        "/api/v1/lease/{lease}/extend": {
            "post": _with(
                _post("", extend, "its new end", extended, errors=lost)["post"],
                [_path("lease")],
                "Let a lease run longer",
            )
        },
        "/api/v1/transaction": _post(
            "Push and settle, all or nothing", transaction, "one result per step", done, errors=lost
        ),
    }, components


def _post(
    summary: str,
    body: dict[str, Any],
    told: str,
    answer: dict[str, Any],
    status: int = 200,
    errors: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "post": {
            "tags": ["messages"],
            "summary": summary,
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": {str(status): _json(told, answer)}
            | {"400": PROBLEM, "413": PROBLEM, "422": PROBLEM, "503": PROBLEM}
            | (errors or {}),
        }
    }


def _with(operation: dict[str, Any], parameters: list[dict[str, Any]], summary: str) -> dict[str, Any]:
    known = operation.get("parameters", [])
    return {**operation, "summary": summary, "parameters": [*parameters, *known]}


def _path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query(name: str, kind: str, description: str, default: Any) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "description": description,
        "schema": {"type": kind, "default": default},
    }


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
