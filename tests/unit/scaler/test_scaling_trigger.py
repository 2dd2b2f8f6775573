"""The metadata of a KEDA trigger."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidRequest
from penstock.scaler.scaling_trigger import ScalingTrigger


def test_a_trigger_becomes_a_request() -> None:
    trigger = ScalingTrigger.from_metadata(
        {"scalerAddress": "s:1", "queue": "a b", "group": "g", "waitTarget": "5", "tokenFromEnv": "secret"}
    )
    assert trigger.path == "/api/v1/queues/a%20b/scaling"
    assert trigger.parameters == {"group": "g", "waitTarget": "5"}
    assert trigger.headers == {"Authorization": "Bearer secret"}
    assert "secret" not in repr(trigger)


@pytest.mark.parametrize(
    ("metadata", "text"), [({}, "names no queue"), ({"queue": "q", "target": "5"}, "unknown field 'target'")]
)
def test_a_wrong_trigger_is_refused(metadata: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        ScalingTrigger.from_metadata(metadata)
