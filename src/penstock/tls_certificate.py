"""The broker's TLS certificate and key: read and check the files, and build TLS contexts from them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import Settings
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

CERTIFICATE_SETTING = "PENSTOCK_TLS_CERT"
KEY_SETTING = "PENSTOCK_TLS_KEY"

FileVersion = tuple[int, int, int]
"""Inode, time of the last change and size of a file."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The PEM files of a certificate, with the intermediate ones after it, and of its key."""

    certificate: Path
    key: Path

    @classmethod
    def from_settings(cls, settings: Settings) -> TlsFiles | None:
        """Return the files of the settings, or None without TLS. Raises ConfigError if one is missing."""
        if not settings.tls_cert and not settings.tls_key:
            return None
        if not settings.tls_cert or not settings.tls_key:
            missing = KEY_SETTING if settings.tls_cert else CERTIFICATE_SETTING
            raise ConfigError(f"TLS needs a certificate and its key. Set {missing} too.")
        return cls(Path(settings.tls_cert), Path(settings.tls_key))

    def version(self) -> tuple[FileVersion | None, FileVersion | None]:
        """Return a value that changes with the content of the files."""
        return _file_version(self.certificate), _file_version(self.key)

    def create_server_context(self) -> ssl.SSLContext:
        """Return a context that serves this certificate. Raises ConfigError if the files are not usable."""
        certificate = read_certificate(self.certificate)
        _check_validity(certificate, self.certificate)
        _check_key(certificate, self)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(
                f"{CERTIFICATE_SETTING}: TLS does not accept the certificate in {self.certificate} ({error})."
            ) from None
        return context


def pinned_client_context(certificate: Path) -> ssl.SSLContext:
    """Return a context that accepts the server with this certificate alone, under any name.

    Programs on the broker's machine use it: they connect to an address that the certificate need not name.
    Raises ConfigError if the file is not usable.
    """
    read_certificate(certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(certificate)
    return context


def read_certificate(path: Path) -> Certificate:
    """Return the first certificate in the file. Raises ConfigError if there is none."""
    from cryptography import x509  # slow to import, and needed with TLS alone

    try:
        return x509.load_pem_x509_certificates(_read(path, CERTIFICATE_SETTING))[0]
    except ValueError:
        raise ConfigError(f"{CERTIFICATE_SETTING}: {path} has no certificate in PEM format.") from None


def _check_validity(certificate: Certificate, path: Path) -> None:
    now = datetime.now(UTC)
    if certificate.not_valid_after_utc < now:
        raise ConfigError(
            f"{CERTIFICATE_SETTING}: the certificate in {path} expired on "
            f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC. Renew it."
        )
    if certificate.not_valid_before_utc > now:
        raise ConfigError(
            f"{CERTIFICATE_SETTING}: the certificate in {path} is not valid before "
            f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC. Check it, and the clock of this machine."
        )


def _check_key(certificate: Certificate, files: TlsFiles) -> None:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(_read(files.key, KEY_SETTING), password=None)
    except TypeError:
        raise ConfigError(
            f"{KEY_SETTING}: the key in {files.key} is encrypted. Decrypt it with `openssl pkey -in "
            f"{files.key} -out plain.key`, protect that file with chmod 600, and name it here."
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"{KEY_SETTING}: {files.key} has no private key in PEM format.") from None
    if key.public_key() != certificate.public_key():
        raise ConfigError(
            f"{KEY_SETTING}: the key in {files.key} does not belong to the certificate in "
            f"{files.certificate}. If that file has several certificates, the broker's own must be the first."
        )


def _read(path: Path, setting: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{setting}: {path} does not exist.") from None
    except OSError as error:
        raise ConfigError(f"{setting}: {path} cannot be read ({error.strerror}).") from None


def _file_version(path: Path) -> FileVersion | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
