"""Create the token of a platform administrator directly in PostgreSQL, before any other token exists."""

from __future__ import annotations

from penstock.access.token_document import issued_token_to_json
from penstock.access.token_rights import access_names
from penstock.access.token_service import AccessTokens, NewToken
from penstock.caller import ALL_ACCESS, LOCAL_CALLER
from penstock.durable.pool import Database


async def create_admin_token(postgres_url: str, name: str, expires_in_s: float | None) -> dict[str, object]:
    """Create a token in the default environment that allows everything everywhere; return its document."""
    database = Database(postgres_url, 1)
    token = NewToken(
        name=name, scopes=access_names(ALL_ACCESS), is_platform_admin=True, expires_in_s=expires_in_s
    )
    try:
        return issued_token_to_json(await AccessTokens(database).create(LOCAL_CALLER, token))
    finally:
        await database.close()
