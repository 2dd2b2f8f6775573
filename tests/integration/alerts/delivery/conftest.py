from __future__ import annotations

from pathlib import Path

import pytest

from penstock.alerts.delivery.address_check import AddressCheck
from penstock.alerts.delivery.outbound import Outbound
from penstock.durable.pool import Database
from tests.certificates import create_certificate, trusting_context
from tests.integration.alerts.delivery.outbox import Outbox


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    return create_certificate(tmp_path)


@pytest.fixture
def outbound(certificate: tuple[Path, Path]) -> Outbound:
    """Connections to the receivers of tests, which are on the loopback address."""
    return Outbound(AddressCheck("127.0.0.0/8"), trusting_context(certificate))


@pytest.fixture
def outbox(database: Database, outbound: Outbound) -> Outbox:
    return Outbox.create(database, outbound)
