"""Complete the OpenAPI document: hot routes, which the framework does not know, and errors of all routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import FastAPI

from penstock.api.problems import PROBLEM_SCHEMA, problem_responses
from penstock.api.schemas import message_bodies
from penstock.caller import ACCESS_SCOPE_NAMES, AccessScope
from penstock.errors import (
    CrossOrigin,
    DatabaseUnavailable,
    Forbidden,
    HeadTooLarge,
    InvalidRequest,
    LeaseLost,
    MalformedBody,
    MalformedRequest,
    Overloaded,
    PayloadTooLarge,
    PenstockError,
    QueueDeleted,
    QueueFull,
    RequestTimeout,
    TransactionFailed,
    Unauthorized,
    UnknownEnvironment,
    UnknownHost,
    UnsupportedMediaType,
    WrongState,
)

JsonObject = dict[str, Any]

COMMON_ERRORS = (
    *(MalformedRequest, RequestTimeout, HeadTooLarge, CrossOrigin, UnknownHost),
    *(InvalidRequest, DatabaseUnavailable),
)
SECURITY_SCHEME = "token"
TOKEN_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "a token of one environment; brokers with PENSTOCK_AUTHENTICATION=none do without",
}
BODY_ERRORS = (MalformedBody, PayloadTooLarge, UnsupportedMediaType)


def describe_app(app: FastAPI, declared_access: Mapping[tuple[str, str], AccessScope]) -> None:
    """Let `app.openapi()` describe the hot routes too, and the access and errors of each operation."""
    generate = app.openapi

    def openapi() -> JsonObject:
        if app.openapi_schema is None:
            document = generate()
            paths, components = _hot_routes()
            document["paths"].update(paths)
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas.update(components)
            schemas["Problem"] = PROBLEM_SCHEMA
            for name in ("HTTPValidationError", "ValidationError"):  # the framework's form of a 422
                schemas.pop(name, None)
            document["components"]["securitySchemes"] = {SECURITY_SCHEME: TOKEN_SCHEME}
            for path, operations in document["paths"].items():
                for method, operation in operations.items():
                    _add_common_problems(operation)
                    _add_access(operation, declared_access[method.upper(), path])
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _add_access(operation: JsonObject, access: AccessScope) -> None:
    if access:
        names = [name for scope, name in ACCESS_SCOPE_NAMES.items() if scope in access]
        operation["security"] = [{SECURITY_SCHEME: names}]
        for status, response in problem_responses(Unauthorized, Forbidden, UnknownEnvironment).items():
            operation["responses"].setdefault(status, response)


def _add_common_problems(operation: JsonObject) -> None:
    has_body = "requestBody" in operation
    responses = operation["responses"]
    responses.pop("422", None)  # in the framework's form
    for status, response in problem_responses(*COMMON_ERRORS, *(BODY_ERRORS if has_body else ())).items():
        responses.setdefault(status, response)


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
            **problem_responses(WrongState, Overloaded),
        },
    }
    queue_labels = [_query(name, "string", f"the queues' {name}", None) for name in ("namespace", "task")]
    transaction_steps = _post(
        "Push and ack, all or nothing",
        transaction,
        "one result per step",
        transaction_response,
        errors=(WrongState, LeaseLost, TransactionFailed, QueueFull, Overloaded),
    )
    failed = transaction_steps["post"]["responses"]["409"]["content"]
    failed["application/json"] = {"schema": transaction_response}  # it names the step that failed
    return {
        "/api/v1/push": _post(
            "Append messages, in order within each partition",
            push,
            "one result per item, in order",
            push_results,
            201,
            deferred=True,
            errors=(WrongState, QueueFull, Overloaded, QueueDeleted),
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
            "Ack one message under its lease",
            ack,
            "its result",
            ack_results,
            deferred=True,
            errors=(LeaseLost, Overloaded),
        ),
        "/api/v1/ack/batch": _post(
            "Ack messages, each on its own",
            ack_batch,
            "one result per ack, in order",
            ack_results,
            deferred=True,
            errors=(Overloaded,),
        ),
        "/api/v1/lease/{lease}/extend": {
            "post": _with(
                _post("", extend, "its new expiry", extend_response, errors=(LeaseLost,))["post"],
                [_path("lease")],
                "Extend a lease",
            )
        },
        "/api/v1/transaction": transaction_steps,
    }, components


def _post(
    summary: str,
    body: JsonObject,
    description: str,
    response: JsonObject,
    status: int = 200,
    *,
    deferred: bool = False,
    errors: Sequence[type[PenstockError]] = (),
) -> JsonObject:
    responses = {str(status): _json(description, response)}
    if deferred:
        responses["202"] = _json("deferred: the operation, and one result per item", {})
    return {
        "post": {
            "tags": ["messages"],
            "summary": summary,
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": responses | problem_responses(*errors),
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
