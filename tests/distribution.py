"""Distribute the tests over the processes of pytest-xdist: the longest first, and a file on one process.

Files that share a fixture which takes long to start are on one process too, so that it starts once.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

SHARED_FIXTURES = {
    "tests/integration/pipeline/": "Spark session",
    "tests/e2e/test_alerts.py": "platform",
    "tests/e2e/test_backup.py": "platform",
    "tests/e2e/test_commands.py": "platform",
    "tests/e2e/test_guide_pages.py": "platform",
    "tests/e2e/test_logs.py": "platform",
    "tests/e2e/test_slice.py": "platform",
    "tests/e2e/test_console.py": "platform with a light load",
    "tests/e2e/test_console_pages.py": "platform with a light load",
    "tests/e2e/queen_client/": "brokers of the Queen client",
}
"""The start of a path, and what all tests there share. These tests start first: each is a large piece."""


def shared_fixture(node_id: str) -> str | None:
    return next((name for start, name in SHARED_FIXTURES.items() if node_id.startswith(start)), None)


def starting_order(node_id: str) -> int:
    """Return the position of a test in the run. Among equals, the order of the directories stays."""
    names = list(dict.fromkeys(SHARED_FIXTURES.values()))
    name = shared_fixture(node_id)
    return len(names) if name is None else names.index(name)


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Assign a file, or all files with the same shared fixture, to one process."""

    def _split_scope(self, nodeid: str) -> str:
        return shared_fixture(nodeid) or nodeid.split("::", 1)[0]
