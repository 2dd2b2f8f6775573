"""Choosing ports, and naming the process that holds a port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.embedded.servers.ports import (
    FREE_PORTS,
    any_free_port,
    choose_port,
    first_unprivileged_port,
    is_port_free,
    require_port,
    require_server_port,
)
from penstock.errors import ComponentFailed


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def test_a_free_preferred_port_is_chosen() -> None:
    port = any_free_port()
    assert choose_port(port) == port


def test_another_port_is_chosen_when_the_preferred_one_is_taken(taken_port: int) -> None:
    chosen = choose_port(taken_port)
    assert chosen != taken_port
    assert is_port_free(chosen)


def test_a_port_of_another_component_is_avoided() -> None:
    port = any_free_port()
    assert choose_port(port, frozenset({port})) != port


def test_a_free_port_is_none_that_an_outgoing_connection_may_take() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        assert any_free_port() in FREE_PORTS
        assert client.getsockname()[1] not in FREE_PORTS


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse the server too")
def test_no_other_process_chooses_a_chosen_port_and_a_server_can_listen_on_it() -> None:
    port = any_free_port()
    choose = f"from penstock.embedded.servers import ports; print(ports._reserve({port}))"
    assert subprocess.check_output([sys.executable, "-c", choose], text=True) == "False\n"
    with socket.create_server(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
        assert not is_port_free(port)
    assert is_port_free(port)


def test_a_port_beyond_the_last_one_is_not_tried() -> None:
    assert choose_port(65536) <= 65535


def test_the_error_for_a_taken_port_names_its_holder_and_the_setting(taken_port: int) -> None:
    with pytest.raises(ComponentFailed) as caught:
        require_port(taken_port)
    assert f"Port {taken_port} is already in use by pid {os.getpid()} (" in caught.value.detail
    assert f"PENSTOCK_PORT={min(taken_port + 10, 65535)} penstock up" in caught.value.detail


def test_the_error_for_the_port_of_an_embedded_server_names_the_server(taken_port: int) -> None:
    with pytest.raises(ComponentFailed) as caught:
        require_server_port("valkey", taken_port)
    assert f"Port {taken_port} of valkey is in use by pid {os.getpid()} (" in caught.value.detail


def test_the_error_for_an_address_of_another_machine_names_the_setting() -> None:
    with pytest.raises(ComponentFailed, match=r"cannot listen on 192.0.2.1 .* Set PENSTOCK_HOST"):
        require_port(any_free_port(), "192.0.2.1")


def test_no_embedded_server_gets_a_port_that_only_root_may_use() -> None:
    assert choose_port(1) >= first_unprivileged_port()
