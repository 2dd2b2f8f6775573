"""Settings: where they come from, which one wins, what is refused, and what is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import Settings, load_settings, mask_url, masked
from penstock.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "penstock.toml"


def test_without_anything_set_the_defaults_hold() -> None:
    settings = load_settings({})
    assert settings.port == 7480
    assert settings == Settings(home=settings.home)


def test_a_variable_wins_over_the_file_and_the_file_over_the_default(file: Path) -> None:
    file.write_text('port = 8000\nlease_ms = 5000\nlog_level = "debug"\n')
    settings = load_settings({"PENSTOCK_PORT": "9000", "PENSTOCK_CONFIG": str(file)})
    assert (settings.port, settings.lease_ms, settings.log_level, settings.host) == (
        9000,
        5000,
        "debug",
        "127.0.0.1",
    )


def test_a_file_named_by_the_caller_wins_over_the_variable(file: Path, tmp_path: Path) -> None:
    file.write_text("port = 8000")
    assert load_settings({"PENSTOCK_CONFIG": str(tmp_path / "other.toml")}, file).port == 8000


def test_an_empty_file_variable_means_no_file() -> None:
    assert load_settings({"PENSTOCK_CONFIG": ""}).port == 7480


def test_variables_of_others_are_left_alone() -> None:
    assert load_settings({"PORT": "1", "OTHER_PENSTOCK_PORT": "2"}).port == 7480


@pytest.mark.parametrize(
    ("variable", "meant"),
    [("PENSTOCK_PROT", "PENSTOCK_PORT"), ("PENSTOCK_POSTGRES_URI", "PENSTOCK_POSTGRES_URL")],
)
def test_an_unknown_variable_is_refused_with_the_nearest_known_one(variable: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({variable: "1"})
    assert caught.value.detail == f"Unknown setting {variable}. Did you mean {meant}?"


def test_an_unknown_variable_like_no_other_names_the_command_that_lists_them() -> None:
    with pytest.raises(ConfigError, match="`penstock config` lists all settings"):
        load_settings({"PENSTOCK_XYZZY": "1"})


def test_an_unknown_key_of_the_file_is_refused_and_the_file_is_named(file: Path) -> None:
    file.write_text("prot = 1")
    with pytest.raises(ConfigError) as caught:
        load_settings({}, file)
    assert f"prot in {file}" in caught.value.detail
    assert "Did you mean PENSTOCK_PORT?" in caught.value.detail


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "0"),
        ("PORT", "65536"),
        ("PORT", "many"),
        ("WORKERS", "0"),
        ("LOG_LEVEL", "loud"),
        ("LEASE_MS", "1.5"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_what_was_given(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({f"PENSTOCK_{name}": value})
    assert name.lower() in caught.value.detail
    assert repr(value) in caught.value.detail


def test_everything_that_does_not_fit_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({"PENSTOCK_PORT": "0", "PENSTOCK_WORKERS": "x"})
    assert "port" in caught.value.detail
    assert "workers" in caught.value.detail


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("false", False), ("0", False)])
def test_flags_are_read_as_people_write_them(text: str, value: bool) -> None:
    assert load_settings({"PENSTOCK_METRICS_ENABLED": text}).metrics_enabled is value


def test_a_missing_or_broken_file_is_named(file: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_settings({}, file)
    file.write_text("port = ")
    with pytest.raises(ConfigError, match=f"{file.name} is not valid TOML"):
        load_settings({}, file)


def test_the_home_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert load_settings({"PENSTOCK_HOME": "here"}).home == tmp_path / "here"
    assert load_settings({"PENSTOCK_HOME": "~/there"}).home == tmp_path / "me" / "there"


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("url", "shown"),
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
    ],
)
def test_a_password_in_an_address_is_never_shown(url: str, shown: str) -> None:
    assert mask_url(url) == shown


def test_what_is_printed_holds_no_secret() -> None:
    settings = Settings(
        postgres_url="postgresql://me:secret1@host/db",
        redis_url="redis://:secret2@host",
        clickhouse_url="http://me:secret3@host",
        encryption_keys="k1:secret4,k2:secret5",
    )
    shown = masked(settings)
    assert "secret" not in str(shown)
    assert shown["encryption_keys"] == "k1:***,k2:***"
    assert shown["port"] == 7480


def test_tokens_are_shown_by_name_only() -> None:
    shown = masked(Settings(dlq_tokens="ops=hush,ci=quiet", dlq_channel_tokens="*=still"))
    assert (shown["dlq_tokens"], shown["dlq_channel_tokens"]) == ("ops=***,ci=***", "*=***")
    assert shown["dlq_consumer_tokens"] == ""
