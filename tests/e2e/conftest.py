"""One platform for all end-to-end tests, and a separate queue for each test."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.whole_platform import RunningPlatform, running_platform


@pytest.fixture(scope="package")
def platform() -> Iterator[RunningPlatform]:
    """A platform that ends with the last test of this directory: at rest it takes a tenth of a core."""
    with running_platform() as platform:
        yield platform


@pytest.fixture
def queue() -> str:
    return f"e2e-{uuid4().hex[:8]}"
