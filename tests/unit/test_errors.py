"""The error classes: each has a unique code for programs and a title for people."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import penstock
from penstock.errors import PenstockError


def find_all_errors() -> list[type[PenstockError]]:
    for package in ("api", "broker", "cli", "durable", "streams", "warehouse", "embedded"):
        root = importlib.import_module(f"{penstock.__name__}.{package}")
        for module in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            importlib.import_module(module.name)
    errors: list[type[PenstockError]] = []
    pending = [PenstockError]
    while pending:
        error = pending.pop()
        errors.append(error)
        pending += error.__subclasses__()
    return [error for error in errors if error.__module__.startswith(penstock.__name__)]


ERRORS = find_all_errors()


def test_error_codes_are_unique() -> None:
    codes = [error.code for error in ERRORS]
    assert len(set(codes)) == len(codes), sorted(codes)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_has_a_code_a_status_and_a_title(error: type[PenstockError]) -> None:
    assert error.code.replace("_", "").isalpha()
    assert error.code == error.code.lower()
    assert 400 <= error.status <= 599
    assert error.title[0].isupper()
    assert not error.title.endswith(".")


def test_an_error_carries_its_detail_and_its_fields() -> None:
    error = PenstockError("do this next", queue="q", limit=3)
    assert str(error) == error.detail == "do this next"
    assert error.fields == {"queue": "q", "limit": 3}
