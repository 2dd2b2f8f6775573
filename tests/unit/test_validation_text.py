"""The words for values that pydantic refuses."""

from __future__ import annotations

import uuid
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from penstock.validation_text import describe_refusal


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (int, "x", "limit must be a whole number, not 'x'."),
        (int, "1.5", "limit must be a whole number, not '1.5'."),
        (float, "x", "limit must be a number, not 'x'."),
        (bool, "maybe", "limit must be true or false, not 'maybe'."),
        (datetime, "soon", "limit must be a time in ISO 8601, such as 2026-01-31T12:00:00Z, not 'soon'."),
        (uuid.UUID, "7", "limit must be a UUID, not '7'."),
        (Colour, "green", "limit must be 'red' or 'blue', not 'green'."),
        (Annotated[int, Field(ge=1)], 0, "limit must be 1 or more, not '0'."),
        (Annotated[int, Field(le=9)], 10, "limit must be 9 or less, not '10'."),
        (Annotated[float, Field(gt=0)], 0, "limit must be more than 0, not '0'."),
        (Annotated[str, Field(min_length=1)], "", "limit must have at least 1 character, not ''."),
        (Annotated[str, Field(max_length=2)], "xxx", "limit must have at most 2 characters, not 'xxx'."),
        (Annotated[str, Field(pattern="^[0-9]$")], "x", "limit 'x' is not valid."),
        (int, "x" * 50, f"limit must be a whole number, not '{'x' * 40}…'."),
    ],
)
def test_a_refused_value_is_described_without_the_words_of_pydantic(
    annotation: Any, value: object, text: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(annotation).validate_python(value)
    assert describe_refusal("limit", caught.value.errors()[0]) == text
