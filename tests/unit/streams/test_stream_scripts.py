"""The Lua files of the streams: their headers match the code."""

from __future__ import annotations

import re
from importlib import resources

import pytest

FILES = sorted(
    file.name
    for file in resources.files("penstock.streams").joinpath("lua").iterdir()
    if file.name.endswith(".lua")
)


@pytest.mark.parametrize("name", FILES)
def test_a_header_names_purpose_keys_arguments_result_errors_and_complexity(name: str) -> None:
    lines = resources.files("penstock.streams").joinpath("lua", name).read_text().splitlines()
    header = "\n".join(line for line in lines if line.startswith("-- "))
    code = "\n".join(line for line in lines if not line.startswith("--"))
    assert re.match(rf"-- {name.removesuffix('.lua')}: \S", header)
    for entry in ("Returns", "Errors", "Complexity"):
        assert re.search(rf"^-- {entry} +\S", header, re.MULTILINE), entry
    for array in ("KEYS", "ARGV"):
        named = re.findall(rf"^-- {array}\[(\d+)\] +\S", header, re.MULTILINE)
        assert named == sorted(set(re.findall(rf"\b{array}\[(\d+)\]", code))), array
