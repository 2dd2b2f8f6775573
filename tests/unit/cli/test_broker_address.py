"""How a command finds the broker that it calls."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from penstock.cli.broker_address import find_broker
from penstock.cli.broker_client import BrokerClient
from penstock.config import Settings, load_settings
from penstock.embedded.supervision.process_identity import identify
from penstock.embedded.supervision.state import PlatformState, write_state
from penstock.errors import ComponentFailed, InvalidRequest

RUNNING_URL = "http://127.0.0.1:8123"


def settings_of(home: Path, **variables: str) -> Settings:
    return load_settings({"PENSTOCK_HOME": str(home), **variables})


@pytest.fixture
def running_home(tmp_path: Path) -> Path:
    """A home with the state file of a platform that this process supervises."""
    (tmp_path / "run").mkdir()
    supervisor = identify(os.getpid())
    assert supervisor is not None
    now = time.time()
    write_state(tmp_path, PlatformState(supervisor, str(tmp_path), RUNNING_URL, now, now, ()))
    return tmp_path


def test_the_running_platform_is_found_whatever_its_port(running_home: Path) -> None:
    assert find_broker(settings_of(running_home), None).url == RUNNING_URL


def test_a_url_and_explicit_settings_win_over_the_running_platform(running_home: Path) -> None:
    assert find_broker(settings_of(running_home), "http://b:1").url == "http://b:1"
    address = find_broker(settings_of(running_home, PENSTOCK_PORT="9000"), None)
    assert address.url == "http://127.0.0.1:9000"
    assert f"runs at {RUNNING_URL}. Unset PENSTOCK_PORT" in address.advice


def test_without_a_platform_the_advice_is_to_start_one(tmp_path: Path) -> None:
    address = find_broker(settings_of(tmp_path), None)
    assert address.url == "http://127.0.0.1:7480"
    assert address.advice.startswith(f"Penstock does not run on {tmp_path}. Start it with `penstock up`")
    explicit = find_broker(settings_of(tmp_path, PENSTOCK_HOST="::"), None)
    assert explicit.url == "http://[::1]:7480"
    assert "comes from PENSTOCK_HOST" in explicit.advice


@pytest.mark.parametrize("url", ["nope", "ftp://x", "http://", "http://[", "http://h:99999", ""])
def test_an_invalid_url_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"in --url is not valid\. Give a URL such as"):
        find_broker(settings_of(tmp_path), url)


def test_errors_do_not_show_a_password_in_the_address(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as refused:
        find_broker(settings_of(tmp_path), "ftp://me:secret@127.0.0.1")
    address = find_broker(settings_of(tmp_path), "http://me:secret@127.0.0.1:1")
    with pytest.raises(ComponentFailed) as unreachable, BrokerClient(address) as client:
        client.get("/health", dict)
    for error in (refused, unreachable):
        assert "me:***@127.0.0.1" in error.value.detail
        assert "secret" not in error.value.detail
