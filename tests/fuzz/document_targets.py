"""Fuzz targets of documents that people write: settings and alert rules. Each is accepted or explained."""

from __future__ import annotations

import string
import tempfile
from pathlib import Path

import tomli_w
from hypothesis import strategies as st

from penstock.alerts.rules.rule_check import RULE_FIELD_NAMES
from penstock.alerts.rules.rule_files import format_rules, parse_rules
from penstock.alerts.rules.rule_types import TYPES
from penstock.config import PREFIX, Settings, as_environment, load_settings, masked
from penstock.errors import ConfigError, ServerUnusable
from tests.fuzz.damage import damaged_text
from tests.fuzz.fuzz_target import FuzzTarget

SETTING_NAMES = list(Settings.model_fields)
TOML_TOKENS = (
    "[",
    "[[",
    "]]",
    "{",
    "}",
    "=",
    '"',
    "'''",
    "\n",
    "[" * 3_000,
    "{a=" * 300,
    "1e999",
    "nan",
    "9" * 400,
)

plain_values = st.one_of(
    st.booleans(),
    st.integers(-5, 100_000),
    st.sampled_from([-(10**18), 10**18, 2**63, 10**400]),
    st.floats(),
    st.text(max_size=20),
    st.text(string.printable, max_size=20),
    st.sampled_from(
        [
            "postgresql://u:p@h/d",
            "redis://",
            "http://[::1",
            "redis://h:99999999/x",
            "30s",
            "9" * 400 + "s",
            "*",
        ]
    ),
    st.datetimes(),
    st.times(),
)
values = st.recursive(
    plain_values,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=5,
)
defaults = {name: value for name, value in Settings().model_dump(mode="json").items() if value is not None}


@st.composite
def settings_sources(draw: st.DrawFn) -> tuple[dict[str, str], str | None]:
    """Variables of the environment, and the text of a settings file."""
    names = st.one_of(st.sampled_from(SETTING_NAMES), st.sampled_from(SETTING_NAMES), st.text(max_size=12))
    usual = st.sampled_from(SETTING_NAMES).map(lambda name: (name, defaults[name]))
    chosen = dict(draw(st.lists(st.one_of(usual, st.tuples(names, values)), max_size=5)))
    in_file = {name: value for name, value in chosen.items() if draw(st.booleans())}
    variables = {
        f"{PREFIX}{name.upper()}": str(value).replace("\0", "")
        for name, value in chosen.items()
        if name not in in_file
    }
    text = draw(damaged_text(st.just(tomli_w.dumps(in_file)), TOML_TOKENS))
    return variables, text if draw(st.booleans()) else None


def check_settings(source: tuple[dict[str, str], str | None]) -> None:
    variables, text = source
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "settings.toml")
        if text is not None:
            file.write_text(text, encoding="utf-8", newline="")
        try:
            settings = load_settings(variables, file if text is not None else None)
        except (ConfigError, ServerUnusable):
            return
    assert load_settings(as_environment(settings)) == settings, "a child process gets other settings"
    masked(settings)


@st.composite
def rule_files(draw: st.DrawFn) -> str:
    names = st.sampled_from([*RULE_FIELD_NAMES.values(), "nmae"])
    usual = st.fixed_dictionaries(
        {
            "name": st.text(string.ascii_letters, min_size=1, max_size=5),
            "type": st.sampled_from([*TYPES]).map(str),
        },
        optional={"threshold": st.one_of(st.integers(0, 1_000), st.sampled_from(["30s", "2h", 0.5]))},
    )
    tables = st.builds(lambda a, b: {**a, **b}, usual, st.dictionaries(names, values, max_size=2))
    rules = draw(st.one_of(st.lists(st.one_of(usual, tables), max_size=3), values))
    return draw(damaged_text(st.just(tomli_w.dumps({"rule": rules})), TOML_TOKENS))


def check_rules(text: str) -> None:
    try:
        rules = parse_rules(text, "alerts.toml")
    except ConfigError:
        return
    assert parse_rules(format_rules(rules), "again.toml") == rules, "written rules are other ones"


TARGETS: list[FuzzTarget] = [
    FuzzTarget("settings", settings_sources(), check_settings, 150),
    FuzzTarget("alert rules in TOML", rule_files(), check_rules, 150),
]
