"""The JSON document of a token, as the API and `penstock tokens --json` show it."""

from __future__ import annotations

import msgspec

from penstock.access.token_service import IssuedToken, SecretDescription, TokenDescription
from penstock.clock import iso


def token_to_json(token: TokenDescription) -> dict[str, object]:
    """Describe a token without its secrets."""
    row = token.row
    return {
        "id": str(row.id),
        "name": row.name,
        "state": row.state,
        "environment": "/".join(token.environment),
        "scopes": row.scopes,
        "queues": row.queues,
        "groups": row.groups,
        "platformAdmin": row.is_platform_admin,
        "quotas": msgspec.json.decode(row.quotas),
        "createdBy": row.created_by,
        "createdAt": iso(row.created_at),
        "expiresAt": row.expires_at and iso(row.expires_at),
        "revokedAt": row.revoked_at and iso(row.revoked_at),
        "lastUsedAt": row.last_used_at and iso(row.last_used_at),
        "secrets": [_secret_to_json(secret) for secret in token.secrets],
    }


def issued_token_to_json(issued: IssuedToken) -> dict[str, object]:
    """Describe a token with its new secret. No other document has it."""
    return {**token_to_json(issued.token), "secret": issued.secret}


def _secret_to_json(secret: SecretDescription) -> dict[str, object]:
    return {
        "prefix": secret.prefix,
        "createdAt": iso(secret.created_at),
        "expiresAt": secret.expires_at and iso(secret.expires_at),
    }
