"""Settings: their sources and precedence, invalid values, and masked secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import Settings, load_settings, mask_url, masked
from penstock.errors import ConfigError, PenstockError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "penstock.toml"


def test_settings_have_defaults() -> None:
    settings = load_settings({})
    assert settings.port == 7480
    assert settings == Settings(home=settings.home)


def test_a_variable_overrides_the_file_and_the_file_overrides_the_default(file: Path) -> None:
    file.write_text('port = 8000\nlease_ms = 5000\nlog_level = "debug"\n')
    settings = load_settings({"PENSTOCK_PORT": "9000", "PENSTOCK_CONFIG": str(file)})
    assert (settings.port, settings.lease_ms, settings.log_level, settings.host) == (
        9000,
        5000,
        "debug",
        "127.0.0.1",
    )


def test_a_file_argument_overrides_the_file_variable(file: Path, tmp_path: Path) -> None:
    file.write_text("port = 8000")
    assert load_settings({"PENSTOCK_CONFIG": str(tmp_path / "other.toml")}, file).port == 8000


def test_an_empty_file_variable_means_no_file() -> None:
    assert load_settings({"PENSTOCK_CONFIG": ""}).port == 7480


def test_variables_without_the_prefix_are_ignored() -> None:
    assert load_settings({"PORT": "1", "OTHER_PENSTOCK_PORT": "2"}).port == 7480


@pytest.mark.parametrize(
    ("variable", "suggestion"),
    [("PENSTOCK_PROT", "PENSTOCK_PORT"), ("PENSTOCK_POSTGRES_URI", "PENSTOCK_POSTGRES_URL")],
)
def test_an_unknown_variable_is_refused_with_a_suggestion(variable: str, suggestion: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({variable: "1"})
    assert caught.value.detail == f"Unknown setting {variable}. Did you mean {suggestion}?"


def test_the_error_for_an_unknown_variable_names_the_command_that_lists_all() -> None:
    with pytest.raises(ConfigError, match="`penstock config` lists all settings"):
        load_settings({"PENSTOCK_XYZZY": "1"})


def test_the_error_for_an_unknown_key_names_the_file(file: Path) -> None:
    file.write_text("prot = 1")
    with pytest.raises(ConfigError) as caught:
        load_settings({}, file)
    assert f"prot in {file}" in caught.value.detail
    assert "Did you mean PENSTOCK_PORT?" in caught.value.detail


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("PORT", "0", "must be a whole number from 1 to 65535"),
        ("PORT", "many", "must be a whole number from 1 to 65535"),
        ("LEASE_MS", "1.5", "must be a whole number of 100 or more"),
        ("TRACE_DAYS", "-1", "must be a number above 0"),
        ("CHUNK_HOURS", "9999", "must be a number above 0 and up to 8760"),
        ("MAINTENANCE_S", "0", "must be a number from 0.1 to 3600"),
        ("METRICS_ENABLED", "maybe", "must be true or false"),
        ("LOG_LEVEL", "loud", "must be debug, info, warning or error"),
        ("FAILED_OPERATION", "stop", "must be skip or hold"),
        ("CLICKHOUSE_CLUSTER", "a b", "must have only letters, digits and the characters _ . -"),
    ],
)
def test_the_error_for_an_invalid_value_says_which_values_are_valid(name: str, value: str, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({f"PENSTOCK_{name}": value})
    assert caught.value.detail == f"PENSTOCK_{name} {rule}, not {value!r}."


def test_one_error_names_all_invalid_values_and_where_they_are(file: Path) -> None:
    file.write_text("workers = 0")
    with pytest.raises(ConfigError) as caught:
        load_settings({"PENSTOCK_PORT": "0"}, file)
    assert "PENSTOCK_PORT must be" in caught.value.detail
    assert f"workers in {file} must be a whole number from 1 to 64, not '0'." in caught.value.detail


def test_every_setting_with_a_pattern_or_choices_has_its_rule_in_words() -> None:
    schema = Settings.model_json_schema()["properties"]
    needs_words = {name for name, field in schema.items() if "pattern" in field or "enum" in field}
    for name in needs_words:
        with pytest.raises(ConfigError, match=r" must .*, not '(\\ufffe|\*\*\*)'\.$"):
            load_settings({f"PENSTOCK_{name.upper()}": "\ufffe"})


def test_a_settings_file_that_cannot_be_read_is_one_sentence(file: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_settings({}, file.parent)
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load_settings({}, file)
    file.write_text("port = 1" + "0" * 5_000)
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load_settings({}, file)
    file.write_text("port = " + "[" * 5_000)
    with pytest.raises(ConfigError, match="is nested too deeply"):
        load_settings({}, file)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("false", False), ("0", False)])
def test_a_flag_accepts_words_and_digits(text: str, value: bool) -> None:
    assert load_settings({"PENSTOCK_METRICS_ENABLED": text}).metrics_enabled is value


def test_the_error_for_a_missing_or_invalid_file_names_it(file: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_settings({}, file)
    file.write_text("port = ")
    with pytest.raises(ConfigError, match=f"{file.name} is not valid TOML"):
        load_settings({}, file)


def test_the_home_becomes_an_absolute_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert load_settings({"PENSTOCK_HOME": "here"}).home == tmp_path / "here"
    assert load_settings({"PENSTOCK_HOME": "~/there"}).home == tmp_path / "me" / "there"


def test_settings_are_immutable() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("url", "masked_url"),
    [
        ("", ""),
        ("postgresql://me@host:5432/db", "postgresql://me@host:5432/db"),
        ("postgresql://me:secret@host:5432/db", "postgresql://me:***@host:5432/db"),
        (
            "postgresql://me:s%40cr%2Fet@host/db?sslmode=require",
            "postgresql://me:***@host/db?sslmode=require",
        ),
        ("redis://:secret@host:6379/0", "redis://:***@host:6379/0"),
        ("http://me:secret@[::1]:8123/db", "http://me:***@[::1]:8123/db"),
        ("http://host:8123/?user=me&password=secret", "http://host:8123/?user=me&password=***"),
        (
            "postgresql:///db?host=/tmp&password=secret&port=1",
            "postgresql:///db?host=/tmp&password=***&port=1",
        ),
        (
            "postgresql://h/db?sslpassword=secret&PASSWORD=secret",
            "postgresql://h/db?sslpassword=***&PASSWORD=***",
        ),
        ("postgresql://a:5432,b:5432/db?x=me@host", "postgresql://a:5432,b:5432/db?x=me@host"),
        ("postgresql://me:secret@a:5432,b:5432/db", "postgresql://me:***@a:5432,b:5432/db"),
        ("http://[::1]:8123/db", "http://[::1]:8123/db"),
        ("http://me:secret@[::1/db", "http://me:***@[::1/db"),
        ("redis://:12/secret@host:6379/0", "redis://:***@host:6379/0"),
        ("redis://:secret#secret@host:6379/0", "redis://:***@host:6379/0"),
        ("redis://:secret?secret@host:6379/0", "redis://:***@host:6379/0"),
        ("redis://:secret@secret@host:6379/0", "redis://:***@host:6379/0"),
        ("redis://me:secret", "redis://me:***"),
        ("/etc/penstock/me:file@host", "/etc/penstock/me:file@host"),
    ],
)
def test_a_password_in_a_url_is_masked(url: str, masked_url: str) -> None:
    assert mask_url(url) == masked_url


def test_masked_settings_contain_no_secret() -> None:
    settings = Settings(
        postgres_url="postgresql://me:secret1@host/db",
        redis_url="redis://:secret2@host",
        clickhouse_url="http://me:secret3@host",
        encryption_keys="k1:secret4,k2:secret5",
        oidc_client_secret="secret6",
        metrics_token="secret7-and-more",
        archive="s3a://key:secret8@bucket/events",
        jwks="https://me:secret9@host/keys?access_token=secret10",
    )
    values = masked(settings)
    assert "secret" not in str(list(values.values()))
    assert values["encryption_keys"] == "k1:***,k2:***"
    assert values["port"] == 7480


def test_a_key_without_an_id_is_masked() -> None:
    assert masked(Settings(encryption_keys="secret,k2:secret"))["encryption_keys"] == "***,k2:***"


def test_errors_about_settings_contain_no_secret() -> None:
    variables = {"PENSTOCK_METRICS_TOKEN": "secret", "PENSTOCK_PUBLIC_URL": "ftp://me:secret@host"}
    with pytest.raises(ConfigError) as caught:
        load_settings(variables)
    assert "PENSTOCK_METRICS_TOKEN must have 16" in caught.value.detail
    assert "ftp://me:***@host" in caught.value.detail
    assert "secret" not in caught.value.detail


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("POSTGRES_URL", "postgresql://me:secret#x@host/db"),
        ("POSTGRES_URL", "postgresql://me:secret@[::1/db"),
        ("REDIS_URL", "redis://:secret/x@host"),
        ("REDIS_URL", "redis://:x@host:secret/0"),
        ("CLICKHOUSE_URL", "me:secret@host"),
    ],
)
def test_a_server_url_that_is_not_valid_is_refused_without_its_password(name: str, url: str) -> None:
    with pytest.raises(PenstockError) as caught:
        load_settings({f"PENSTOCK_{name}": url})
    assert f"PENSTOCK_{name}: " in caught.value.detail
    assert "secret" not in caught.value.detail
