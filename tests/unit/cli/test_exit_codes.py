"""Exit codes of commands that end with an error."""

from __future__ import annotations

import pytest

from penstock.cli.exit_codes import MEANINGS, BrokerRefusal, BrokerUnreachable, ExitCode, exit_code_of
from penstock.errors import ConfigError, InvalidRequest, PenstockError, UnknownEnvironment, UnknownQueue


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequest("x"), 2),
        (ConfigError("x"), 2),
        (BrokerRefusal("x", 422), 2),
        (BrokerUnreachable("x"), 3),
        (BrokerRefusal("x", 401), 4),
        (BrokerRefusal("x", 403), 4),
        (UnknownQueue("x"), 5),
        (UnknownEnvironment("x"), 5),
        (BrokerRefusal("x", 404), 5),
        (BrokerRefusal("x", 409), 6),
        (BrokerRefusal("x", 429), 7),
        (BrokerRefusal("x", 503), 7),
    ],
)
def test_an_error_has_the_exit_code_of_the_table(error: PenstockError, code: int) -> None:
    assert exit_code_of(error) == code


def test_every_exit_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(ExitCode)
