"""Problem details of errors."""

from __future__ import annotations

import json

from penstock.api.problems import from_penstock_error
from penstock.errors import UnknownGroup
from penstock.model import QUEUE_MODE


def test_the_text_of_a_problem_says_queue_mode_and_its_field_has_the_groups_name() -> None:
    error = UnknownGroup(f"Consumer group {QUEUE_MODE!r} does not exist.", group=QUEUE_MODE)
    body = json.loads(bytes(from_penstock_error(error).body))
    assert body["detail"] == body["error"] == "Consumer group 'queue mode' does not exist."
    assert body["group"] == QUEUE_MODE
