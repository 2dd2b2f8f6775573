"""Apply the silences of an environment to the past."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from penstock.alerts.backtest.backtest_request import SilenceCheck, never_silenced
from penstock.alerts.incidents.silence_service import SilenceDescription
from penstock.alerts.incidents.silences import Silence, is_active, silence_check
from penstock.alerts.rules.alert_rule import AlertRule


def past_silence(description: SilenceDescription) -> Silence:
    """Return a silence as it applies to the past.

    A recurring silence without a start applies to all of the past. Any other one begins when it was created.
    """
    silence = description.silence
    if silence.recurrence is not None or silence.starts_at is not None:
        return silence
    return msgspec.structs.replace(silence, starts_at=description.created_at)


def past_silence_check(silences: Sequence[Silence], rule: AlertRule) -> SilenceCheck:
    """Return a function that tells whether a queue of the rule was silenced at a time."""
    if not silences:
        return never_silenced

    @lru_cache(maxsize=1)
    def check_at(now_s: float) -> Callable[[str], bool]:
        return silence_check([silence for silence in silences if is_active(silence, now_s)], rule)

    return lambda queue, now_s: check_at(now_s)(queue)
