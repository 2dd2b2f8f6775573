"""`penstock alerts silences` against a broker on a real socket."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError
from tests.integration.cli.test_alert_channel_commands import run, run_json, url

__all__ = ["url"]


async def test_a_silence_is_added_listed_and_removed(url: str) -> None:
    added = await run_json(
        *(url, "silences", "add", "--queue", "orders*", "--label", "team=shop", "--for", "2h"),
        *("--every", "mon-fri 22:00-06:00", "--zone", "Europe/Berlin", "--comment", "[release]"),
    )
    assert added["recurrence"]["timeZone"] == "Europe/Berlin"
    listed = (await run(url, "silences", "ls")).stdout
    for text in ("queue orders*, team=shop", "mon,tue,wed,thu,fri 22:00-06:00 Europe/Berlin", "[release]"):
        assert text in listed
    removed = await run(url, "silences", "rm", added["id"])
    assert removed.exit_code == 0, removed.output
    assert (await run(url, "silences", "ls")).stdout == "There are no silences.\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--for", "soon"), "--for 'soon' is not a time"),
        (("--every", "never"), "--every 'never' is not valid"),
        (("--every", "mon 22:00-06:00", "--zone", "Nowhere"), "'Nowhere' does not exist"),
        (("--label", "team"), "has no value"),
    ],
)
async def test_wrong_options_are_refused(url: str, arguments: tuple[str, ...], message: str) -> None:
    result = await run(url, "silences", "add", *arguments)
    assert isinstance(result.exception, PenstockError)
    assert message in result.exception.detail
    assert await run_json(url, "silences", "ls") == []
