"""Routes that manage alert rules."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from penstock.alerts.rules.alert_rule import PLATFORM_TYPES, AlertRule, Operator, RuleType, Statistic
from penstock.alerts.rules.rule_check import RULE_FIELD_NAMES
from penstock.alerts.rules.rule_service import AlertRules, UnknownAlertRule
from penstock.alerts.rules.rule_types import TYPES, TypeDescription
from penstock.api.access import ConfigureAccess, ReadAccess
from penstock.api.audited_change import audit_change, state_before
from penstock.api.http.parameters import refuse_unknown_parameters
from penstock.api.http.request_parsing import read_json, request_body_schema
from penstock.api.http.response import json_response
from penstock.api.problems import problem_responses
from penstock.api.services import get_services
from penstock.errors import Forbidden, Unauthorized, WrongState

router = APIRouter(
    responses=problem_responses(Unauthorized, Forbidden),
    prefix="/api/v1",
    tags=["alerts"],
    dependencies=[Depends(refuse_unknown_parameters)],
)


class DefaultRulesBody(msgspec.Struct, forbid_unknown_fields=True):
    channels: list[str]


_fields_decoder = msgspec.json.Decoder(dict[str, Any])
_defaults_decoder = msgspec.json.Decoder(DefaultRulesBody)


@router.get("/alert-rules")
async def list_alert_rules(request: Request, caller: ReadAccess) -> dict[str, object]:
    """List the alert rules by name, with the counts of their last evaluation."""
    return {"rules": await _rules(request).list_rules(caller.environment)}


@router.post(
    "/alert-rules",
    status_code=201,
    responses=problem_responses(WrongState),
    openapi_extra=request_body_schema(AlertRule),
)
async def create_alert_rule(request: Request, caller: ConfigureAccess) -> Response:
    """Create an alert rule. Fields that are left out have the defaults of the rule's type."""
    rules = _rules(request)
    fields = await read_json(request, _fields_decoder)
    rule = await rules.create_rule(caller.environment, fields)
    audit_change(request, after=_definition(rule), name=rule["name"])
    response = json_response(rule, {"Location": f"/api/v1/alert-rules/{rule['id']}"})
    response.status_code = 201
    return response


@router.post("/alert-rules/defaults", openapi_extra=request_body_schema(DefaultRulesBody))
async def enable_default_rules(request: Request, caller: ConfigureAccess) -> dict[str, object]:
    """Create the default rules that do not exist yet, with notices to the channels. Returns all rules."""
    rules = _rules(request)
    body = await read_json(request, _defaults_decoder)
    before = [rule["name"] for rule in await rules.list_rules(caller.environment)]
    all_rules = await rules.enable_defaults(caller.environment, body.channels)
    after = [rule["name"] for rule in all_rules]
    audit_change(request, before={"rules": before}, after={"rules": after, "channels": body.channels})
    return {"rules": all_rules}


@router.get("/alert-rules/types")
async def list_alert_rule_types(caller: ReadAccess) -> dict[str, object]:
    """List the types of rules: their unit, defaults and fields, and whether they can be tested."""
    return {"types": [_type_to_json(*item) for item in TYPES.items()]}


@router.get("/alert-rules/{rule_id}", responses=problem_responses(UnknownAlertRule))
async def get_alert_rule(request: Request, caller: ReadAccess, rule_id: uuid.UUID) -> dict[str, object]:
    """Show an alert rule."""
    return await _rules(request).get_rule(caller.environment, rule_id)


@router.put(
    "/alert-rules/{rule_id}",
    responses=problem_responses(UnknownAlertRule, WrongState),
    openapi_extra=request_body_schema(AlertRule),
)
async def replace_alert_rule(
    request: Request, caller: ConfigureAccess, rule_id: uuid.UUID
) -> dict[str, object]:
    """Replace an alert rule. Its open incident stays open until the new condition clears."""
    fields = await read_json(request, _fields_decoder)
    before = await state_before(_rules(request).get_rule(caller.environment, rule_id), _definition)
    after = await _rules(request).replace_rule(caller.environment, rule_id, fields)
    audit_change(request, before=before, after=_definition(after), name=after["name"])
    return after


@router.delete("/alert-rules/{rule_id}", responses=problem_responses(UnknownAlertRule))
async def delete_alert_rule(
    request: Request, caller: ConfigureAccess, rule_id: uuid.UUID
) -> dict[str, object]:
    """Delete an alert rule. The next evaluation resolves its open incident."""
    before = await state_before(_rules(request).get_rule(caller.environment, rule_id), _definition)
    await _rules(request).delete_rule(caller.environment, rule_id)
    audit_change(request, before=before)
    return {"deleted": True, "id": str(rule_id)}


def _type_to_json(rule_type: RuleType, description: TypeDescription) -> dict[str, object]:
    """Return the JSON of a type. `threshold` is null if a rule must have one of its own."""
    return {
        "type": rule_type.value,
        "help": description.help,
        "unit": description.unit.value,
        "threshold": description.threshold,
        "operators": [operator.value for operator in Operator if operator in description.operators],
        "statistics": [statistic.value for statistic in Statistic if statistic in description.statistics],
        "windowMinutes": description.window_minutes,
        "minSamples": description.min_samples,
        "fields": sorted(RULE_FIELD_NAMES[name] for name in description.fields),
        "isOfEnvironment": rule_type in PLATFORM_TYPES,
        "canBeTested": not description.needs_live_state and rule_type not in PLATFORM_TYPES,
    }


def _definition(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule without the counts of its evaluation."""
    return {field: value for field, value in rule.items() if field != "status"}


def _rules(request: Request) -> AlertRules:
    return get_services(request).alert_rules
