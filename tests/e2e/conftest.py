"""One platform for all end-to-end tests, and a queue of its own for each."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.whole_platform import Platform, running_platform


@pytest.fixture(scope="session")
def platform() -> Iterator[Platform]:
    with running_platform() as platform:
        yield platform


@pytest.fixture
def queue() -> str:
    return f"e2e-{uuid4().hex[:8]}"
