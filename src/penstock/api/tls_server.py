"""Serve TLS with a certificate that is read again when its files change, without dropping connections."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

from uvicorn import Config

from penstock.errors import ConfigError
from penstock.tls_certificate import TlsFiles, read_certificate

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S = 1.0
"""The files must stay the same for one interval, so that a new certificate is not read without its key."""


class ServedCertificate:
    """The certificate of new connections. Connections keep the one that they started with."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._read_version = self._last_version = files.version()
        self._context = files.create_server_context()
        self.listening_context = files.create_server_context()
        """The context of the listening socket. Each handshake continues with the current certificate."""
        self.listening_context.sni_callback = self._use_current_certificate

    def watch(self) -> None:
        """Read the files again when they change, in a thread that ends with the process."""
        threading.Thread(target=self._watch, name="tls-certificate", daemon=True).start()

    def _use_current_certificate(
        self, connection: ssl.SSLObject, server_name: str | None, context: ssl.SSLSocket | ssl.SSLContext
    ) -> None:
        connection.context = self._context

    def _watch(self) -> None:
        while True:
            time.sleep(CHECK_INTERVAL_S)
            self.reload_if_changed()

    def reload_if_changed(self) -> None:
        """Use the files if they have changed and stayed the same since the last call."""
        version = self._files.version()
        is_stable, self._last_version = version == self._last_version, version
        if version == self._read_version or not is_stable:
            return
        self._read_version = version
        try:
            self._context = self._files.create_server_context()
            expires_at = read_certificate(self._files.certificate).not_valid_after_utc
        except ConfigError as error:
            logger.error("The TLS certificate was not replaced. %s", error.detail)
        else:
            logger.info("The TLS certificate was replaced. The new one is valid until %s.", expires_at)


def create_listening_context(config: Config, default_factory: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """Return the TLS context of a broker process. uvicorn calls this in each process."""
    assert config.ssl_certfile is not None
    assert config.ssl_keyfile is not None
    certificate = ServedCertificate(TlsFiles(Path(config.ssl_certfile), Path(config.ssl_keyfile)))
    certificate.watch()
    return certificate.listening_context
