"""What `penstock up` says when everything runs."""

from __future__ import annotations

from penstock.cli.up import first_steps


def test_without_tokens_the_first_step_is_a_push() -> None:
    text = first_steps("http://127.0.0.1:7480", requires_token=False)
    assert text.startswith("Push a message: curl -X POST http://127.0.0.1:7480/api/v1/push ")
    assert "token" not in text.lower()


def test_a_broker_that_requires_tokens_says_how_to_create_the_first_one() -> None:
    create, push = first_steps("http://127.0.0.1:7480", requires_token=True).splitlines()
    assert "penstock tokens create --admin" in create
    assert '-H "Authorization: Bearer $PENSTOCK_TOKEN"' in push
