"""Create environments of tests."""

from __future__ import annotations

from penstock.durable.access.environment_store import EnvironmentStore
from penstock.durable.pool import Session
from penstock.model import Scope


async def create_environment(session: Session, scope: Scope) -> None:
    """Create an environment unless it exists. Nothing else creates one."""
    await EnvironmentStore(session).create(scope, "{}")
