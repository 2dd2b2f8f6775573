"""The client guide lists all settings, and all options of consumers and workers, with their defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from penstock.client import Client, ClientSettings, Tasks
from penstock.client.pop_request import PopOptions, PopRequest

GUIDE = Path(__file__).parents[3] / "docs" / "client.md"


def documented_defaults(text_before: str) -> dict[str, str]:
    """Return the first two columns of the first table after a text of the guide."""
    lines = GUIDE.read_text().split(text_before, 1)[1].splitlines()
    separator_index = next(index for index, line in enumerate(lines) if line.startswith("|---"))
    defaults = {}
    for line in lines[separator_index + 1 :]:
        if not line.startswith("|"):
            break
        name, default = (cell.strip().strip("`") for cell in line.split("|")[1:3])
        defaults[name] = default
    return defaults


def keyword_defaults(method: Callable[..., object]) -> dict[str, str]:
    return {
        name: '""' if parameter.default == "" else str(parameter.default)
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def test_the_guide_lists_every_setting_with_its_default() -> None:
    defaults = {field.name: str(field.default) for field in fields(ClientSettings)}
    assert documented_defaults("## Settings\n") == defaults


def test_the_guide_lists_every_option_of_a_consumer_with_its_default() -> None:
    pop_defaults = {field.name: str(field.default) for field in fields(PopRequest)}
    defaults = keyword_defaults(Client.consume) | {
        name: pop_defaults[name] for name in PopOptions.__annotations__
    }
    assert documented_defaults("## Consumer options\n") == defaults


def test_the_guide_lists_every_option_of_a_worker_with_its_default() -> None:
    assert documented_defaults("\n| Worker option") == keyword_defaults(Tasks.worker)
