"""Create the token of a platform administrator directly in PostgreSQL, before any other token exists."""

from __future__ import annotations

import getpass

import msgspec

from penstock.access.token_document import issued_token_to_json, token_to_json
from penstock.access.token_rights import access_names
from penstock.access.token_service import AccessTokens, NewToken
from penstock.caller import ALL_ACCESS, LOCAL_CALLER
from penstock.durable.access.audit_store import AuditEntry, AuditStore
from penstock.durable.pool import Database
from penstock.ids import new_id_text

AUDITED_ACTION = "penstock tokens create --admin"


async def create_admin_token(postgres_url: str, name: str, expires_in_s: float | None) -> dict[str, object]:
    """Create a token in the default environment that allows everything everywhere; return its document.

    The audit has it under the name of the user who runs this program.
    """
    database = Database(postgres_url, 1)
    token = NewToken(
        name=name, scopes=access_names(ALL_ACCESS), is_platform_admin=True, expires_in_s=expires_in_s
    )
    try:
        issued = await AccessTokens(database).create(LOCAL_CALLER, token)
        await AuditStore(database).record(
            AuditEntry(
                environment=LOCAL_CALLER.environment,
                subject=f"{LOCAL_CALLER.subject}:{getpass.getuser()}",
                address="local",
                action=AUDITED_ACTION,
                object=msgspec.json.encode({"name": name}).decode(),
                status=201,
                denied=False,
                after=msgspec.json.encode(token_to_json(issued.token)).decode(),
                request_id=new_id_text(),
            )
        )
        return issued_token_to_json(issued)
    finally:
        await database.close()
