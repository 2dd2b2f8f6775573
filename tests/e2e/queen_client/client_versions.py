"""The published versions of the Queen client that the tests run with.

Both are packages named `queen`. The first is installed like every other package. `tools/setup.sh` installs
the second into a directory of its own, from which it is imported under another name.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType
from typing import Any

import queen

INSTALLED, SEPARATE = "0.15.0", "2.6.0"
VERSIONS = (INSTALLED, SEPARATE)
RETRIES: dict[str, dict[str, Any]] = {
    INSTALLED: {"retry_attempts": 1},
    SEPARATE: {"retry_attempts": 1, "retry_429": {"max_attempts": 2}},  # 10 by default, a second apart
}
"""Arguments of each client: few retries, because most refused requests in the tests stay refused."""
_SEPARATE_DIRECTORY = Path(sys.prefix) / "queen-mq-2"


@cache
def load_client(version: str) -> ModuleType:
    """Import the package of this version."""
    directory = Path(queen.__file__).parents[1] if version == INSTALLED else _SEPARATE_DIRECTORY
    found = [item.version for item in distributions(name="queen-mq", path=[str(directory)])]
    assert found == [version], f"queen-mq {version} is not in {directory}: run `make setup-dev`"
    return queen if version == INSTALLED else _import_as("queen_2", directory / "queen")


def _import_as(name: str, package: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
