"""The broker's problems in the words of the command line."""

from __future__ import annotations

import pytest

from penstock.cli.problem_text import describe_problem


@pytest.mark.parametrize(
    ("code", "field", "detail", "text"),
    [
        (
            "invalid_request",
            "limit",
            "limit must be a whole number from 1 to 1000, not 'x'.",
            "--limit must be a whole number from 1 to 1000, not 'x'.",
        ),
        (
            "invalid_request",
            "consumerGroup",
            "consumerGroup 'a/b' is not a valid name. Use 1 to 255 printable characters without a slash.",
            "--group 'a/b' is not a valid name. Use 1 to 255 printable characters without a slash.",
        ),
        (
            "invalid_request",
            "partition",
            "'mails' is a run queue and has no partitions. Omit `partition`.",
            "'mails' is a run queue and has no partitions. Omit --partition.",
        ),
        (
            "invalid_request",
            "letter_id",
            "letter_id 'abc' is not valid.",
            "The id of the dead letter 'abc' is not valid. `penstock dlq ls` shows the ids.",
        ),
        (
            "unknown_job",
            None,
            "Job 7 does not exist. GET /api/v1/jobs lists the jobs of the last 31 days.",
            "Job 7 does not exist. `penstock dlq jobs` lists the jobs of the last 31 days.",
        ),
        (
            "wrong_state",
            None,
            "'orders' is a durable queue. Push messages to it at /api/v1/push, or use another name.",
            "'orders' is a durable queue.",
        ),
        (
            "unauthorized",
            None,
            "The request has no token.",
            "The request has no token. Set PENSTOCK_TOKEN to the secret of a token. The first one is created "
            "with `penstock tokens create --admin` on the broker's machine.",
        ),
    ],
)
def test_a_problem_names_options_and_commands_instead_of_fields_and_routes(
    code: str, field: str | None, detail: str, text: str
) -> None:
    assert describe_problem({"code": code, "field": field, "detail": detail}, "http://b", 422) == text


def test_an_unknown_queue_is_named_with_a_suggestion() -> None:
    problem = {"code": "unknown_queue", "queue": "nope", "detail": "Queue 'nope' does not exist. …"}
    assert describe_problem({**problem, "didYouMean": "node"}, "http://b", 404) == (
        "Unknown queue 'nope'. Did you mean 'node'?"
    )
    assert describe_problem(problem, "http://b", 404) == (
        "Unknown queue 'nope'. `penstock queues ls` lists the queues."
    )
    assert describe_problem({**problem, "kind": "durable"}, "http://b", 404) == (
        "'nope' is a durable queue. There is no run queue of this name."
    )


def test_a_response_without_a_problem_names_the_broker_and_the_status() -> None:
    assert describe_problem({}, "http://b", 502) == "The broker at http://b returned HTTP 502."
