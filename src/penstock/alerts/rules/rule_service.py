"""Create, list, replace and delete the alert rules of an environment."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.alerts.rules.alert_rule import AlertRule
from penstock.alerts.rules.default_rules import DEFAULT_RULES
from penstock.alerts.rules.rule_check import parse_rule, rule_to_json
from penstock.clock import iso
from penstock.durable.alerts.channel_store import ChannelStore
from penstock.durable.alerts.rule_store import AlertRuleRow, AlertRuleStore
from penstock.durable.pool import Session
from penstock.errors import InvalidRequest, PenstockError, WrongState
from penstock.ids import new_id
from penstock.model import Scope


class UnknownAlertRule(PenstockError):
    code = "unknown_alert_rule"
    status = 404
    title = "Unknown alert rule"


class AlertRules:
    """The rules of environments."""

    def __init__(self, session: Session) -> None:
        self._store = AlertRuleStore(session)
        self._channels = ChannelStore(session)

    async def list_rules(self, scope: Scope) -> list[dict[str, Any]]:
        return [_row_to_json(row) for row in await self._store.list_rules(scope)]

    async def get_rule(self, scope: Scope, rule_id: uuid.UUID) -> dict[str, Any]:
        row = await self._store.find_rule(scope, rule_id)
        if row is None:
            raise _unknown_rule(rule_id)
        return _row_to_json(row)

    async def create_rule(self, scope: Scope, fields: Mapping[str, Any]) -> dict[str, Any]:
        return await self._put(scope, new_id(), parse_rule(fields))

    async def replace_rule(
        self, scope: Scope, rule_id: uuid.UUID, fields: Mapping[str, Any]
    ) -> dict[str, Any]:
        if await self._store.find_rule(scope, rule_id) is None:
            raise _unknown_rule(rule_id)
        return await self._put(scope, rule_id, parse_rule(fields))

    async def delete_rule(self, scope: Scope, rule_id: uuid.UUID) -> None:
        if not await self._store.delete_rule(scope, rule_id):
            raise _unknown_rule(rule_id)

    async def enable_defaults(self, scope: Scope, channels: Sequence[str]) -> list[dict[str, Any]]:
        """Create the default rules that do not exist yet, with notices to the channels; return all rules."""
        if not channels:
            raise InvalidRequest(
                "Default rules need a channel. Add one with `penstock alerts channels create`.",
                field="channels",
            )
        existing = {rule["name"] for rule in await self.list_rules(scope)}
        for rule in DEFAULT_RULES:
            if rule.name not in existing:
                await self._put(scope, new_id(), msgspec.structs.replace(rule, channels=tuple(channels)))
        return await self.list_rules(scope)

    async def _put(self, scope: Scope, rule_id: uuid.UUID, rule: AlertRule) -> dict[str, Any]:
        await self._check_channels(scope, rule)
        document = msgspec.json.encode(rule_to_json(rule)).decode()
        if await self._store.put_rule(scope, rule_id, document) == "name_taken":
            raise WrongState(
                f"Another alert rule is called {rule.name!r}. Choose another name.", field="name"
            )
        return await self.get_rule(scope, rule_id)

    async def _check_channels(self, scope: Scope, rule: AlertRule) -> None:
        if not rule.channels:
            return
        known = {channel.name for channel in await self._channels.list_channels(scope)}
        for name in rule.channels:
            if name not in known:
                names = ", ".join(sorted(known)) or "none"
                raise InvalidRequest(f"Channel {name!r} does not exist. Channels: {names}.", field="channels")


def _unknown_rule(rule_id: uuid.UUID) -> UnknownAlertRule:
    return UnknownAlertRule(
        f"Alert rule {rule_id} does not exist. List the rules with GET /api/v1/alert-rules."
    )


def _row_to_json(row: AlertRuleRow) -> dict[str, Any]:
    status = None
    if row.evaluated_at is not None:
        names = ("ok", "pending", "firing", "clearing", "unknown")
        status = {
            "evaluatedAt": iso(row.evaluated_at),
            **{name: getattr(row, name) for name in names},
            "unknownReason": row.unknown_reason,
        }
    return {
        "id": str(row.id),
        **msgspec.json.decode(row.rule),
        "createdAt": iso(row.created_at),
        "updatedAt": iso(row.updated_at),
        "status": status,
    }
