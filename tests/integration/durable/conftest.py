from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.durable.pool import Database

sys.path.insert(0, str(Path(__file__).parent))

from under_test import QueueUnderTest

pytest.register_assert_rewrite("paired_queue", "queue_model")


@pytest.fixture
def queue(database: Database) -> QueueUnderTest:
    return QueueUnderTest(database)
