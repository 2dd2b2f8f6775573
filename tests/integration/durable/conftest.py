from __future__ import annotations

import pytest

from penstock.durable.pool import Database
from tests.integration.durable.queue_under_test import QueueUnderTest

pytest.register_assert_rewrite(
    "tests.integration.durable.checked_queue",
    "tests.integration.durable.model_comparison",
    "tests.integration.durable.queue_model",
)


@pytest.fixture
def queue(database: Database) -> QueueUnderTest:
    return QueueUnderTest(database)
