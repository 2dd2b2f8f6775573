"""Samples of quotas for `GET /metrics`."""

from __future__ import annotations

from penstock import telemetry
from penstock.api.exporter.process_samples import Samples, SampleTable
from penstock.api.services import Services
from penstock.caller import Caller


def quota_samples(services: Services, caller: Caller) -> SampleTable:
    """The limits of quotas and their use, in the environments whose metrics the caller may read."""
    limits: Samples = {}
    uses: Samples = {}
    for environment, readings in services.quotas.read_limited_environments().items():
        if not may_read(caller, environment):
            continue
        for reading in readings:
            labels = (*environment, reading.quota)
            limits[labels] = reading.limit
            if reading.used is not None:
                uses[labels] = reading.used
    return {telemetry.QUOTA_LIMIT: limits, telemetry.QUOTA_USED: uses}


def may_read(caller: Caller, environment: tuple[str, ...]) -> bool:
    return caller.is_platform_admin or tuple(caller.environment) == environment
