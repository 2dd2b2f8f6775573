"""The files of the broker's TLS certificate: each problem is one precise line."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from penstock.config import Settings, load_settings
from penstock.errors import ConfigError
from penstock.listen_address import check_listen_address, local_url
from penstock.tls_certificate import TlsFiles
from tests.certificates import create_certificate


def problem_of(certificate: Path, key: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        check_listen_address(Settings(tls_cert=str(certificate), tls_key=str(key)))
    assert "\n" not in caught.value.detail
    return caught.value.detail


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    certificate, key = create_certificate(tmp_path)
    missing = tmp_path / "missing.pem"
    assert problem_of(missing, key) == f"PENSTOCK_TLS_CERT: {missing} does not exist."
    assert problem_of(certificate, missing) == f"PENSTOCK_TLS_KEY: {missing} does not exist."
    assert (
        problem_of(certificate, tmp_path) == f"PENSTOCK_TLS_KEY: {tmp_path} cannot be read (Is a directory)."
    )


def test_a_file_without_a_certificate_or_key_is_named(tmp_path: Path) -> None:
    certificate, key = create_certificate(tmp_path)
    assert problem_of(key, key) == f"PENSTOCK_TLS_CERT: {key} has no certificate in PEM format."
    assert problem_of(certificate, certificate).startswith(f"PENSTOCK_TLS_KEY: {certificate} has no private")


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    certificate, _ = create_certificate(tmp_path)
    _, other_key = create_certificate(tmp_path / "other")
    assert f"the key in {other_key} does not belong to the certificate" in problem_of(certificate, other_key)


def test_an_encrypted_key_is_refused_without_a_question(tmp_path: Path) -> None:
    assert "is encrypted. Decrypt it with `openssl pkey" in problem_of(
        *create_certificate(tmp_path, password=b"secret")
    )


def test_an_expired_or_future_certificate_is_refused(tmp_path: Path) -> None:
    assert " expired on 20" in problem_of(
        *create_certificate(tmp_path, not_before_days=-3, not_after_days=-0.1)
    )
    assert " is not valid before 20" in problem_of(
        *create_certificate(tmp_path, not_before_days=0.1, not_after_days=3)
    )


@pytest.mark.parametrize(("name", "missing"), [("tls_cert", "TLS_KEY"), ("tls_key", "TLS_CERT")])
def test_a_certificate_needs_its_key(name: str, missing: str) -> None:
    with pytest.raises(ConfigError, match=f"Set PENSTOCK_{missing} too"):
        check_listen_address(Settings.model_validate({name: "file.pem"}))


def test_the_server_speaks_tls_1_2_and_newer(tmp_path: Path) -> None:
    context = TlsFiles(*create_certificate(tmp_path)).create_server_context()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_relative_files_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_settings({"PENSTOCK_TLS_CERT": "cert.pem", "PENSTOCK_TLS_KEY": "~/key.pem"})
    assert settings.tls_cert == str(tmp_path / "cert.pem")
    assert settings.tls_key == str(Path.home() / "key.pem")
    assert load_settings({}).tls_cert == ""


def test_the_url_of_the_broker_depends_on_tls_and_the_address() -> None:
    assert local_url(Settings(host="0.0.0.0", port=1)) == "http://127.0.0.1:1"
    assert local_url(Settings(host="::", port=1)) == "http://[::1]:1"
    assert local_url(Settings(port=1, tls_cert="cert.pem")) == "https://127.0.0.1:1"


def test_authentication_without_tls_on_a_network_is_a_warning(tmp_path: Path) -> None:
    exposed = Settings(host="0.0.0.0", authentication="required")
    assert "plain text" in (check_listen_address(exposed) or "")
    certificate, key = map(str, create_certificate(tmp_path))
    with_tls = exposed.model_copy(update={"tls_cert": certificate, "tls_key": key})
    assert check_listen_address(with_tls) is None
