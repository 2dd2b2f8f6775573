"""The hot routes in the OpenAPI document: they bypass the framework, so they are described here."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI

from penstock.api import schemas

PROBLEM = {
    "description": "problem details (RFC 9457); `error` repeats `detail`",
    "content": {"application/problem+json": {"schema": {"type": "object"}}},
}


def describe(app: FastAPI) -> None:
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
        schemas.PushBody,
        list[schemas.PushItemResult],
        schemas.PopResponse,
        schemas.AckBody,
        list[schemas.AckResult],
    ]
    (push, pushed, popped, ack, acked), components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    pop = {
        "tags": ["messages"],
        "summary": "Lease the next messages",
        "parameters": [
            _path("queue"),
            _query("batch", "integer", "how many messages at most", 1),
            _query("partitions", "integer", "from how many partitions at most", 1),
            _query("consumerGroup", "string", "who consumes; queue mode if left out", None),
            _query("autoAck", "boolean", "take them for good, without a lease", False),
        ],
        "responses": {"200": _json("messages under a lease", popped), "204": {"description": "none waiting"}}
        | {"422": PROBLEM, "503": PROBLEM},
    }
    partition = {**pop, "summary": "Lease the next messages of one partition"}
    partition["parameters"] = [_path("partition"), *pop["parameters"]]
    return {
        "/api/v1/push": {
            "post": {
                "tags": ["messages"],
                "summary": "Append messages, in order within each partition",
                "requestBody": {"required": True, "content": {"application/json": {"schema": push}}},
                "responses": {"201": _json("one result per item, in order", pushed)}
                | {"400": PROBLEM, "413": PROBLEM, "422": PROBLEM, "503": PROBLEM},
            }
        },
        "/api/v1/pop/queue/{queue}": {"get": pop},
        "/api/v1/pop/queue/{queue}/partition/{partition}": {"get": partition},
        "/api/v1/ack": {
            "post": {
                "tags": ["messages"],
                "summary": "Settle one message under its lease",
                "requestBody": {"required": True, "content": {"application/json": {"schema": ack}}},
                "responses": {"200": _json("what became of it", acked)}
                | {"400": PROBLEM, "409": PROBLEM, "422": PROBLEM, "503": PROBLEM},
            }
        },
    }, components


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
