"""Run the external scaler on a port until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from ssl import SSLContext

import grpc
import httpx

from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.scaler.external_scaler import POLL_S, ExternalScaler

logger = logging.getLogger(__name__)

BROKER_TIMEOUT_S = 10.0
STOP_S = 2.0


@asynccontextmanager
async def running_scaler(
    settings: Settings, broker_url: str, verify: SSLContext | bool = True, poll_s: float = POLL_S
) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port. Raises ConfigError."""
    address = f"{settings.scaler_host}:{settings.scaler_port}"
    async with httpx.AsyncClient(
        base_url=broker_url, timeout=BROKER_TIMEOUT_S, trust_env=False, verify=verify
    ) as broker:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((ExternalScaler(broker, poll_s).handler(),))
        try:
            if settings.tls_cert:
                port = server.add_secure_port(address, _tls_credentials(settings))
            else:
                port = server.add_insecure_port(address)
        except RuntimeError:
            raise ConfigError(
                f"The scaler cannot listen on {address}. Set PENSTOCK_SCALER_PORT to a free port."
            ) from None
        await server.start()
        logger.info("the scaler listens on %s:%d and asks %s", settings.scaler_host, port, broker_url)
        try:
            yield port
        finally:
            await server.stop(STOP_S)


async def run_scaler(settings: Settings, broker_url: str, verify: SSLContext | bool = True) -> None:
    """Serve until SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with running_scaler(settings, broker_url, verify):
        await stopped.wait()


def _tls_credentials(settings: Settings) -> grpc.ServerCredentials:
    pair = (Path(settings.tls_key).read_bytes(), Path(settings.tls_cert).read_bytes())
    return grpc.ssl_server_credentials([pair])
