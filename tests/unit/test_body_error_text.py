"""The words for bodies that msgspec refuses."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
import pytest

from penstock.body_error_text import NAME_PATTERN, TIME_OF_DAY_PATTERN, describe_body_error


class Colour(StrEnum):
    RED = "red"


class Paint(msgspec.Struct, forbid_unknown_fields=True):
    colours: Annotated[tuple[Colour, ...], msgspec.Meta(min_length=1)] = (Colour.RED,)
    name: Annotated[str, msgspec.Meta(pattern=NAME_PATTERN, max_length=5)] | None = None
    at: Annotated[str, msgspec.Meta(pattern=TIME_OF_DAY_PATTERN)] = "00:00"
    code: Annotated[str, msgspec.Meta(pattern="^[x]$")] = "x"
    coats: Annotated[int, msgspec.Meta(ge=1)] = 1
    dry: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class Order(msgspec.Struct):
    paint: Paint


TIME_WORDS = "must be a time in ISO 8601, such as 2026-01-31T12:00:00Z, with a time zone."


@pytest.mark.parametrize(
    ("paint", "path", "text"),
    [
        ({"colours": []}, "paint.colours", "must have at least 1 entry."),
        ({"colours": ["blue"]}, "paint.colours[0]", "'blue' does not exist."),
        ({"name": "a b"}, "paint.name", "must have only letters, digits, dots, dashes and underscores, and"),
        ({"name": "abcdef"}, "paint.name", "must have at most 5 characters."),
        ({"name": 1}, "paint.name", "must be text or null."),
        ({"at": "25:00"}, "paint.at", "must be a time of day, such as 22:00."),
        ({"code": "y"}, "paint.code", "has characters that are not allowed."),
        ({"coats": 0}, "paint.coats", "must be at least 1."),
        ({"coats": "1"}, "paint.coats", "must be a whole number."),
        ({"dry": "soon"}, "paint.dry", TIME_WORDS),
        ({"dry": "2026-01-31T12:00:00"}, "paint.dry", TIME_WORDS),
        ({"shine": 1}, "paint.shine", "is not a known field."),
        (None, "paint", "must be an object."),
    ],
)
def test_a_refused_body_is_described_without_the_words_of_msgspec(
    paint: object, path: str, text: str
) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(msgspec.json.encode({"paint": paint}), type=Order)
    sentence, described_path = describe_body_error(refused.value)
    assert described_path == path
    assert sentence.startswith(f"{path} {text}")


def test_a_missing_field_and_a_wrong_body_are_described() -> None:
    for body, sentence in ((b"{}", "paint is missing."), (b"[]", "The body must be an object.")):
        with pytest.raises(msgspec.ValidationError) as refused:
            msgspec.json.decode(body, type=Order)
        assert describe_body_error(refused.value)[0] == sentence
