"""Where `--token` takes its secret from."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from penstock.cli.options import read_token
from penstock.errors import InvalidRequest


def test_a_token_comes_from_the_option_a_file_or_the_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("pk_file\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("pk_stdin\n"))
    assert read_token("pk_option") == "pk_option"
    assert read_token(f"@{file}") == "pk_file"
    assert read_token("-") == "pk_stdin"


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="missing of --token cannot be read: No such file"):
        read_token(f"@{tmp_path / 'missing'}")


@pytest.mark.parametrize("text", [" ", "pk_a b", "pk_a\nb", "pk_ä"])
def test_a_text_that_is_no_token_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(InvalidRequest, match="characters that no token has") as error:
        read_token(text)
    assert "pk_" not in error.value.detail
