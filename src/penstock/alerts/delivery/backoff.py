"""When the next attempt to deliver a notice follows, and when the sender gives up."""

from __future__ import annotations

import random
from dataclasses import dataclass

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double up to an hour: 33 attempts take about a day."""

    first_s: float = 5.0
    max_s: float = 3_600.0
    max_attempts: int = 33
    jitter: float = 0.2
    """Each delay is changed by up to this share, so that failed notices do not all return together."""

    def next_delay_s(self, attempts: int, requested_s: float | None = None) -> float | None:
        """Return the delay after this number of attempts; None: give up.

        The receiver's own delay (Retry-After) counts if it is longer, up to a day.
        """
        if attempts >= self.max_attempts:
            return None
        delay_s = min(self.first_s * 2.0 ** (attempts - 1), self.max_s)
        delay_s *= random.uniform(1 - self.jitter, 1 + self.jitter)
        return max(delay_s, min(requested_s or 0.0, DAY_S))
