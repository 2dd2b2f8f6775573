"""Describe the hot routes in the OpenAPI document. The framework does not know them."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI

from penstock.api.schemas import message_bodies

JsonObject = dict[str, Any]

PROBLEM: JsonObject = {
    "description": "problem details (RFC 9457); `error` repeats `detail`",
    "content": {"application/problem+json": {"schema": {"type": "object"}}},
}


def add_hot_routes(app: FastAPI) -> None:
    """Add the hot routes to the document that `app.openapi()` returns."""
    generate = app.openapi

    def openapi() -> JsonObject:
        if app.openapi_schema is None:
            document = generate()
            paths, components = _hot_routes()
            document["paths"].update(paths)
            document.setdefault("components", {}).setdefault("schemas", {}).update(components)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _hot_routes() -> tuple[JsonObject, JsonObject]:
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
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    push, push_results, messages, ack, ack_batch, ack_results, *others = schemas
    extend, extend_response, transaction, transaction_response = others
    pop = {
        "tags": ["messages"],
        "summary": "Lease the next messages",
        "parameters": [
            _query("batch", "integer", "maximum number of messages", 1),
            _query("partitions", "integer", "maximum number of partitions to lease from", 1),
            _query("consumerGroup", "string", "the consumer group; queue mode if left out", None),
            _query("wait", "boolean", "wait for the first message", False),
            _query("timeout", "integer", "maximum wait in ms", 30_000),
            _query("autoAck", "boolean", "ack the messages at once, without a lease", False),
            _query("subscriptionMode", "string", "where a new group starts: all or new", "all"),
            _query(
                "subscriptionFrom", "string", "where a new group starts: now, or a time in ISO 8601", None
            ),
        ],
        "responses": {
            "200": _json("leased messages", messages),
            "204": {"description": "no message is ready"},
        }
        | {"422": PROBLEM, "503": PROBLEM},
    }
    queue_labels = [_query(name, "string", f"the queues' {name}", None) for name in ("namespace", "task")]
    lease_lost = {"409": PROBLEM}
    return {
        "/api/v1/push": _post(
            "Append messages, in order within each partition",
            push,
            "one result per item, in order",
            push_results,
            201,
        ),
        "/api/v1/pop": {
            "get": _with(pop, queue_labels, "Lease the next messages of any queue of a namespace or task")
        },
        "/api/v1/pop/queue/{queue}": {"get": _with(pop, [_path("queue")], "Lease the next messages")},
        "/api/v1/pop/queue/{queue}/partition/{partition}": {
            "get": _with(
                pop, [_path("queue"), _path("partition")], "Lease the next messages of one partition"
            )
        },
        "/api/v1/ack": _post(
            "Ack one message under its lease", ack, "its result", ack_results, errors=lease_lost
        ),
        "/api/v1/ack/batch": _post(
            "Ack messages, each on its own", ack_batch, "one result per ack, in order", ack_results
        ),
        "/api/v1/lease/{lease}/extend": {
            "post": _with(
                _post("", extend, "its new expiry", extend_response, errors=lease_lost)["post"],
                [_path("lease")],
                "Extend a lease",
            )
        },
        "/api/v1/transaction": _post(
            "Push and ack, all or nothing",
            transaction,
            "one result per step",
            transaction_response,
            errors=lease_lost,
        ),
    }, components


def _post(
    summary: str,
    body: JsonObject,
    description: str,
    response: JsonObject,
    status: int = 200,
    errors: JsonObject | None = None,
) -> JsonObject:
    return {
        "post": {
            "tags": ["messages"],
            "summary": summary,
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": {str(status): _json(description, response)}
            | {"400": PROBLEM, "413": PROBLEM, "422": PROBLEM, "503": PROBLEM}
            | (errors or {}),
        }
    }


def _with(operation: JsonObject, parameters: list[JsonObject], summary: str) -> JsonObject:
    existing = operation.get("parameters", [])
    return {**operation, "summary": summary, "parameters": [*parameters, *existing]}


def _path(name: str) -> JsonObject:
    schema = message_bodies.PATH_NAME_SCHEMA if name == "queue" else {"type": "string"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query(name: str, schema_type: str, description: str, default: object) -> JsonObject:
    return {
        "name": name,
        "in": "query",
        "description": description,
        "schema": {"type": schema_type, "default": default}
        | (message_bodies.PATH_NAME_SCHEMA if name == "consumerGroup" else {}),
    }


def _json(description: str, schema: JsonObject) -> JsonObject:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
