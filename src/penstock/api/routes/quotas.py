"""The quotas of the caller: their limits, and what all brokers use of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request

from penstock.access.quotas.quota_definitions import QUOTAS
from penstock.access.quotas.quota_registry import QuotaReading, QuotaRegistry
from penstock.api.access import Requires
from penstock.api.http.parameters import refuse_unknown_parameters
from penstock.api.services import get_services
from penstock.caller import AccessScope, Caller

router = APIRouter(prefix="/api/v1", tags=["access"], dependencies=[Depends(refuse_unknown_parameters)])

UncountedReadAccess = Annotated[
    Caller, Depends(Requires(AccessScope.READ, checks_names=True, has_quota=False))
]
"""A caller that has used up a quota can still read which one."""


@router.get("/quotas")
async def get_quotas(request: Request, caller: UncountedReadAccess) -> dict[str, object]:
    """List the quotas of the caller's environment and token with their limit and use.

    `used` covers all brokers; it is null until it is known. `warning` is true from 80 % of the limit on. A
    quota without a limit is not listed; `kinds` has all that can be set. `warnings` has those of all
    environments for platform administrators.
    """
    quotas = get_services(request).quotas
    if not caller.has_known_quotas:
        quotas.attach(caller)
    environment = {
        "name": "/".join(caller.environment),
        "quotas": readings_to_json(quotas.read_environment(caller.environment)),
    }
    token = None
    if caller.token_id is not None:
        token = {
            "id": caller.token_id,
            "name": caller.subject.partition(":")[2],
            "quotas": readings_to_json(quotas.read_token(caller)),
        }
    kinds = [
        {"quota": quota, "unit": definition.unit, "minLimit": definition.min_limit}
        for quota, definition in QUOTAS.items()
    ]
    warnings = _warnings(quotas, caller)
    return {"environment": environment, "token": token, "warnings": warnings, "kinds": kinds}


def _warnings(quotas: QuotaRegistry, caller: Caller) -> list[dict[str, object]]:
    """The quotas that are nearly used up, in the environments that the caller may know."""
    return [
        {"environment": "/".join(scope), **reading}
        for scope, readings in sorted(quotas.read_limited_environments().items())
        if caller.is_platform_admin or scope == caller.environment
        for reading in readings_to_json(readings)
        if reading.pop("warning")
    ]


def readings_to_json(readings: Sequence[QuotaReading]) -> list[dict[str, object]]:
    return [
        {
            "quota": reading.quota,
            "limit": int(reading.limit),
            "used": None if reading.used is None else round(reading.used, 1),
            "warning": reading.is_warning,
        }
        for reading in readings
    ]
