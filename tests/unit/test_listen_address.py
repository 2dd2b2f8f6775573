"""Where a broker may listen without authentication."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.config import Settings
from penstock.embedded.servers.ports import any_free_port
from penstock.errors import ConfigError
from penstock.listen_address import check_listen_address, is_loopback
from tests.deadlines import deadline_s


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "127.1", "localhost", "::1"])
def test_loopback_addresses_and_names_are_allowed_without_authentication(host: str) -> None:
    assert is_loopback(host)
    assert check_listen_address(Settings(host=host)) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "0", "", "::", "192.0.2.1", "10.1.2.3", "no-such-name.invalid"])
def test_an_address_that_other_machines_reach_is_refused_without_authentication(host: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_listen_address(Settings(host=host))
    assert f"PENSTOCK_HOST={host} " in caught.value.detail
    assert "PENSTOCK_AUTHENTICATION=required" in caught.value.detail
    check_listen_address(Settings(host=host, authentication="required"))


def test_proxies_are_refused_without_authentication() -> None:
    behind_proxy = Settings(trusted_proxies="127.0.0.1")
    with pytest.raises(ConfigError, match=r"PENSTOCK_TRUSTED_PROXIES lets other machines .* unset it"):
        check_listen_address(behind_proxy)
    assert check_listen_address(behind_proxy.model_copy(update={"authentication": "required"})) is None


def test_an_insecure_address_is_allowed_with_a_warning() -> None:
    warning = check_listen_address(Settings(host="0.0.0.0", insecure=True))
    assert warning is not None
    assert "PENSTOCK_INSECURE" in warning


@pytest.mark.parametrize(
    "command", [("penstock.cli.main", "up"), ("penstock.cli.main", "serve"), ("penstock.api.server",)]
)
def test_commands_refuse_such_an_address_with_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    own_variables = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    settings = {"PENSTOCK_HOST": "0.0.0.0", "PENSTOCK_PORT": str(any_free_port())}
    result = subprocess.run(
        [sys.executable, "-m", *command],
        env={**own_variables, **settings, "PENSTOCK_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=deadline_s(60),
        check=False,
    )
    assert result.returncode == ConfigError.exit_code
    output = (result.stdout + result.stderr).strip()
    assert "PENSTOCK_INSECURE=1" in output
    assert len(output.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
