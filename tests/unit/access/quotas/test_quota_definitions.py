from __future__ import annotations

import pytest

from penstock.access.quotas.quota_definitions import QUOTAS, parse_quotas
from penstock.errors import InvalidRequest


def test_every_quota_can_be_limited() -> None:
    limits = dict.fromkeys(QUOTAS, 7)
    assert parse_quotas(limits) == limits


def test_null_removes_a_limit_and_whole_floats_are_numbers() -> None:
    assert parse_quotas({"queues": None, "partitions": 5.0}) == {"partitions": 5}


@pytest.mark.parametrize("limit", [-1, 1.5, True, "10", 10**16, [], float("inf"), float("nan")])
def test_a_limit_is_a_whole_number_in_range(limit: object) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse_quotas({"queues": limit})
    assert raised.value.fields["field"] == "quotas.queues"


@pytest.mark.parametrize("name", ["requestsPerSecond", "bytesPerSecond", "connections"])
def test_a_limit_of_zero_is_refused_where_it_could_never_be_raised_again(name: str) -> None:
    with pytest.raises(InvalidRequest, match="from 1 to"):
        parse_quotas({name: 0})


def test_an_unknown_quota_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(InvalidRequest, match="storedMessages"):
        parse_quotas({"messages": 1})
