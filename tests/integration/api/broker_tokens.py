"""A broker that requires authentication, with tokens and environments for its tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx

from penstock.access.token_service import NewToken
from penstock.api.services import Services
from penstock.caller import ACCESS_SCOPE_NAMES, LOCAL_CALLER
from penstock.config import Settings
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE, Scope
from tests.deadlines import deadline_s
from tests.integration.api.calls import app_services
from tests.integration.api.http.raw_connections import RunningServer, run_server

ALL_SCOPES = list(ACCESS_SCOPE_NAMES.values())
OTHER_ENVIRONMENT = Scope("acme", "shop", "staging")


class GuardedBroker:
    """A running broker, and its tokens by environment and scopes."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self._secrets: dict[tuple[Scope, frozenset[str]], str] = {}

    @property
    def services(self) -> Services:
        return app_services(self.server.app)

    async def secret(self, scopes: Collection[str], environment: Scope = DEFAULT_SCOPE) -> str:
        """A token of the environment with these scopes."""
        key = (environment, frozenset(scopes))
        if key not in self._secrets:
            name = f"token {len(self._secrets)}"
            self._secrets[key] = await self.create(NewToken(name=name, scopes=list(scopes)), environment)
        return self._secrets[key]

    async def create(self, token: NewToken, environment: Scope = DEFAULT_SCOPE) -> str:
        creator = replace(LOCAL_CALLER, environment=environment)
        return (await self.services.access_tokens.create(creator, token)).secret

    def client(self, secret: str | None = None, **options: Any) -> httpx.AsyncClient:
        headers = {"Content-Type": "application/json"} | (bearer(secret) if secret else {})
        url = f"http://localhost:{self.server.port}"
        return httpx.AsyncClient(base_url=url, headers=headers, **{"timeout": deadline_s(10)} | options)


async def create_other_environment(database: Database) -> None:
    """Store `OTHER_ENVIRONMENT` before a broker starts, which reads it then."""
    await database.fetch(
        "INSERT INTO environments (organization, project, name) VALUES ($1, $2, $3)", *OTHER_ENVIRONMENT
    )


@asynccontextmanager
async def run_guarded_broker(settings: Settings) -> AsyncIterator[GuardedBroker]:
    """Run a broker that requires authentication."""
    async with run_server(settings.model_copy(update={"authentication": "required"})) as server:
        yield GuardedBroker(server)


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}
