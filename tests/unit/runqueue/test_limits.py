"""Values that run queues refuse."""

from __future__ import annotations

import msgspec
import pytest

from penstock.api.schemas.task_bodies import HeartbeatBody, LimitsBody
from penstock.errors import InvalidRequest
from penstock.runqueue import limits
from penstock.runqueue.queue import RunQueues


@pytest.mark.parametrize("value", [0, -1, limits.MAX_CONCURRENCY + 1, True])
def test_a_concurrency_limit_out_of_range_is_refused_and_suggests_a_pause(value: int) -> None:
    with pytest.raises(InvalidRequest, match=r"from 1 to 1000000.*Pause the queue"):
        limits.check_concurrency_limit(value)


def test_no_concurrency_limit_is_allowed() -> None:
    assert limits.check_concurrency_limit(None) is None


def test_the_json_schema_of_a_concurrency_limit_starts_at_one() -> None:
    schema = msgspec.json.schema(LimitsBody)["$defs"]["LimitsBody"]
    assert {"type": "integer", "minimum": 1, "maximum": limits.MAX_CONCURRENCY} in (
        schema["properties"]["concurrency"]["anyOf"]
    )


@pytest.mark.parametrize("visibility_ms", [limits.MIN_VISIBILITY_MS - 1, limits.MAX_VISIBILITY_MS + 1])
async def test_routes_scripts_and_setting_have_the_same_range_of_visibility(visibility_ms: int) -> None:
    with pytest.raises(InvalidRequest, match="visibility_ms must be"):
        RunQueues("redis://127.0.0.1:1", visibility_ms=visibility_ms)
    with pytest.raises(InvalidRequest, match="visibility_ms must be"):
        limits.check_visibility(visibility_ms)
    with pytest.raises(msgspec.ValidationError, match="visibilityMs"):
        msgspec.convert({"token": 1, "visibilityMs": visibility_ms}, HeartbeatBody)
