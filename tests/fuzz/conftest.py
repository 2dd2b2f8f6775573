from __future__ import annotations

import pytest

from tests.fuzz.fuzz_run import PLUGIN_NAME, FuzzRun
from tests.integration.api.conftest import shared_settings
from tests.integration.conftest import administrator, template

__all__ = ["administrator", "shared_settings", "template"]


@pytest.fixture(scope="session")
def fuzz_run(pytestconfig: pytest.Config) -> FuzzRun:
    """The long run of `make fuzz`, or the short one of the suite."""
    plugin = pytestconfig.pluginmanager.get_plugin(PLUGIN_NAME)
    return plugin if isinstance(plugin, FuzzRun) else FuzzRun()
