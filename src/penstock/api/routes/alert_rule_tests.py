"""Route that tests an alert rule over stored metrics, before it pages."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import msgspec
from fastapi import APIRouter, Depends
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import Response

from penstock.alerts.backtest.backtest_request import (
    BacktestRequest,
    PastIncident,
    check_is_testable,
    resolve_period,
)
from penstock.alerts.backtest.past_silences import past_silence, past_silence_check
from penstock.alerts.incidents.incident_service import UnknownIncident
from penstock.alerts.rules.rule_check import parse_rule
from penstock.alerts.rules.rule_types import CompleteRule, complete_rule
from penstock.api.access import ReadAccess
from penstock.api.http.parameters import refuse_unknown_parameters
from penstock.api.http.request_parsing import parse_time, read_json, request_body_schema
from penstock.api.problems import problem_responses
from penstock.api.services import Services, get_services
from penstock.caller import Caller
from penstock.clock import system_clock
from penstock.definitions import QUEUE
from penstock.errors import (
    Forbidden,
    InvalidRequest,
    Overloaded,
    RedisUnavailable,
    Unauthorized,
    WarehouseUnavailable,
)
from penstock.streams.watermark import read_watermark

router = APIRouter(
    responses=problem_responses(Unauthorized, Forbidden),
    prefix="/api/v1",
    tags=["alerts"],
    dependencies=[Depends(refuse_unknown_parameters)],
)

MAX_QUEUES = 100_000
MAX_SILENCES = 10_000


class BacktestBody(msgspec.Struct, forbid_unknown_fields=True, rename={"start": "from", "end": "to"}):
    """A rule and the past that it is tested over."""

    rule: dict[str, Any]
    """All fields of a rule, as in POST /api/v1/alert-rules."""
    period: str | None = None
    """Length of the period until now, such as 24h; default: 7d."""
    start: str | None = None
    """Start of the period in ISO 8601, instead of its length."""
    end: str | None = None
    atMost: str | None = None
    """Suggest the threshold that pages at most this often, such as 1/week."""
    incidentId: uuid.UUID | None = None
    """Test the rule over the time around this incident, and compare."""


_decoder = msgspec.json.Decoder(BacktestBody)


@router.post(
    "/alert-rules/test",
    responses=problem_responses(
        InvalidRequest, UnknownIncident, Overloaded, RedisUnavailable, WarehouseUnavailable
    ),
    openapi_extra=request_body_schema(BacktestBody),
)
async def run_alert_rule_test(request: Request, caller: ReadAccess) -> Response:
    """Run a rule over stored metrics: what would have fired and been notified. Nothing is stored or sent.

    The conditions, states, cooldown, grouping and silences are those of the evaluation. `atMost` adds the
    threshold that would have paged at most that often; `incidentId` compares with a past incident.
    """
    services = get_services(request)
    body = await read_json(request, _decoder)
    rule = complete_rule(parse_rule(body.rule))
    check_is_testable(rule)
    backtest = await _build_request(services, caller, body, rule)
    encoded = await asyncio.to_thread(
        lambda: msgspec.json.encode(services.warehouse.run_backtest(caller.environment, backtest))
    )
    return Response(encoded, media_type="application/json")


async def _build_request(
    services: Services, caller: Caller, body: BacktestBody, rule: CompleteRule
) -> BacktestRequest:
    now_s = system_clock()
    past_incident = None
    if body.incidentId is not None:
        if body.period is not None or body.start is not None or body.end is not None:
            raise InvalidRequest("An incident has its own period: send no period, from or to.")
        past_incident = await _read_incident(services, caller, body.incidentId)
        start_s, end_s = past_incident.replayed_period(rule, now_s)
    else:
        start_s, end_s = resolve_period(
            body.period, _parse_seconds("from", body.start), _parse_seconds("to", body.end), now_s
        )
    silences = await services.alert_silences.list_silences(caller.environment, limit=MAX_SILENCES, offset=0)
    queues = await services.broker.store.catalog.list_queues(caller.environment, limit=MAX_QUEUES)
    try:
        run_queues = await services.run_queues.list_queues(caller.environment)
        counted_until_s = await read_watermark(services.redis, QUEUE)
    except (RedisError, OSError) as error:
        raise RedisUnavailable(f"Redis does not answer: {error}") from error
    return BacktestRequest(
        rule=rule,
        start_s=start_s,
        end_s=end_s,
        now_s=now_s,
        counted_until_s=counted_until_s,
        live_queues=frozenset([*(queue.name for queue in queues), *(queue.queue for queue in run_queues)]),
        at_most=body.atMost,
        past_incident=past_incident,
        is_silenced=past_silence_check([past_silence(silence) for silence in silences], rule.rule),
    )


async def _read_incident(services: Services, caller: Caller, incident_id: uuid.UUID) -> PastIncident:
    incident = (await services.alert_incidents.get(caller.environment, incident_id)).incident
    resolved_at = incident.resolved_at
    return PastIncident(
        str(incident.id),
        str(msgspec.json.decode(incident.rule).get("name", "")),
        incident.opened_at.timestamp(),
        None if resolved_at is None else resolved_at.timestamp(),
    )


def _parse_seconds(field: str, text: str | None) -> float | None:
    return None if text is None else parse_time(field, text).timestamp()
