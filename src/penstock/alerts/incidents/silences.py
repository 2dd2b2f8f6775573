"""Silences: times during which some queues and rules cause no notices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from penstock.alerts.incidents.recurrence import Recurrence, is_within
from penstock.alerts.rules.alert_rule import AlertRule, Severity
from penstock.alerts.rules.queue_scope import in_scope
from penstock.body_error_text import PRINTABLE_PATTERN, STORABLE_PATTERN, describe_body_error
from penstock.errors import InvalidRequest

ACTIVE, SCHEDULED, ENDED = "active", "scheduled", "ended"

FIRST_YEAR, LAST_YEAR = 1970, 9998
"""Bounds that leave room for arithmetic: `datetime` overflows at its ends."""

Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=PRINTABLE_PATTERN)]
ShortText = Annotated[str, msgspec.Meta(max_length=255, pattern=PRINTABLE_PATTERN)]
LongText = Annotated[str, msgspec.Meta(max_length=1_000, pattern=STORABLE_PATTERN)]
Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Silence(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A silence as it is written. A field of the scope that is None selects everything."""

    queue: Pattern | None = None
    """A queue, or a pattern with `*` and `?`."""
    rule: Pattern | None = None
    """The name of a rule."""
    severity: Severity | None = None
    labels: Annotated[dict[Pattern, ShortText], msgspec.Meta(max_length=20)] = {}
    """Labels that a rule must have, with these values."""
    starts_at: Time | None = None
    """None: at once."""
    ends_at: Time | None = None
    """None: until it is deleted."""
    recurrence: Recurrence | None = None
    """Within the times above, the silence applies only then; None: all the time."""
    comment: LongText = ""
    created_by: ShortText = ""


def parse_silence(fields: Mapping[str, object]) -> Silence:
    """Convert and check a silence. Raises InvalidRequest."""
    try:
        silence = msgspec.convert(fields, Silence)
    except msgspec.ValidationError as error:
        sentence, field = describe_body_error(error)
        raise InvalidRequest(f"The silence is not valid: {sentence}", field=field) from None
    for name, moment in (("startsAt", silence.starts_at), ("endsAt", silence.ends_at)):
        if moment is not None and not FIRST_YEAR <= moment.year <= LAST_YEAR:
            raise InvalidRequest(
                f"{name} must be a time in the years {FIRST_YEAR} to {LAST_YEAR}.", field=name
            )
    if silence.starts_at and silence.ends_at and silence.ends_at <= silence.starts_at:
        raise InvalidRequest("endsAt must be after startsAt.", field="endsAt")
    if silence.recurrence is not None:
        check_time_zone(silence.recurrence.time_zone)
    return msgspec.structs.replace(
        silence, starts_at=_in_utc(silence.starts_at), ends_at=_in_utc(silence.ends_at)
    )


def _in_utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)


def check_time_zone(name: str) -> None:
    """Raise InvalidRequest unless the IANA time zone exists."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidRequest(
            f"The time zone {name!r} does not exist. Use an IANA name, such as Europe/Berlin.",
            field="timeZone",
        ) from None


def silence_state(silence: Silence, time_s: float) -> str:
    """Return `active`, `scheduled` (it applies later) or `ended`."""
    if silence.ends_at is not None and silence.ends_at.timestamp() <= time_s:
        return ENDED
    if silence.starts_at is not None and time_s < silence.starts_at.timestamp():
        return SCHEDULED
    is_now = silence.recurrence is None or is_within(silence.recurrence, time_s)
    return ACTIVE if is_now else SCHEDULED


def is_active(silence: Silence, time_s: float) -> bool:
    return silence_state(silence, time_s) == ACTIVE


def silence_check(silences: Iterable[Silence], rule: AlertRule) -> Callable[[str], bool]:
    """Return a function that tells whether one of the silences applies to a queue of the rule."""
    patterns = [silence.queue for silence in silences if _selects_rule(silence, rule)]
    return lambda queue: any(in_scope(pattern, queue) for pattern in patterns)


def _selects_rule(silence: Silence, rule: AlertRule) -> bool:
    return (
        silence.rule in (None, rule.name)
        and silence.severity in (None, rule.severity)
        and silence.labels.items() <= rule.labels.items()
    )
