from __future__ import annotations

import pytest

from penstock.durable.pool import Database
from tests.integration.durable.under_test import QueueUnderTest

pytest.register_assert_rewrite("paired_queue", "queue_model")


@pytest.fixture
def queue(database: Database) -> QueueUnderTest:
    return QueueUnderTest(database)
