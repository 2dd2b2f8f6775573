"""Store the alert rules of environments."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import NamedTuple

from penstock.durable.pool import Session, fetch_all, fetch_one, fetch_value
from penstock.model import Scope


class AlertRuleRow(NamedTuple):
    """A rule (JSON text) with the counts of its last evaluation, which are None before the first."""

    id: uuid.UUID
    rule: str
    created_at: datetime
    updated_at: datetime
    evaluated_at: datetime | None
    ok: int | None
    pending: int | None
    firing: int | None
    clearing: int | None
    unknown: int | None
    unknown_reason: str | None


class AlertRuleStore:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def list_rules(self, scope: Scope) -> list[AlertRuleRow]:
        return await fetch_all(
            self._session, AlertRuleRow, "SELECT * FROM alert_rules_v1($1, $2, $3)", *scope
        )

    async def find_rule(self, scope: Scope, rule_id: uuid.UUID) -> AlertRuleRow | None:
        return await fetch_one(
            self._session, AlertRuleRow, "SELECT * FROM alert_rules_v1($1, $2, $3, $4)", *scope, rule_id
        )

    async def put_rule(self, scope: Scope, rule_id: uuid.UUID, rule: str) -> str:
        """Create or replace a rule; return `created`, `replaced` or `name_taken`."""
        return await fetch_value(
            self._session, str, "SELECT put_alert_rule_v1($1, $2, $3, $4, $5)", *scope, rule_id, rule
        )

    async def delete_rule(self, scope: Scope, rule_id: uuid.UUID) -> bool:
        return await fetch_value(
            self._session, bool, "SELECT delete_alert_rule_v1($1, $2, $3, $4)", *scope, rule_id
        )
