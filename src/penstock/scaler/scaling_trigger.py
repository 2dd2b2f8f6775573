"""The metadata of a KEDA trigger, as a request to the broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from penstock.errors import InvalidRequest

PARAMETERS = ("group", "waitTarget", "minWorkers", "maxWorkers", "workerRate")
TOKENS = ("token", "tokenFromEnv")
"""KEDA replaces the value of `tokenFromEnv` with that variable of the scaled container."""
KEDA_FIELDS = frozenset({"scalerAddress", "enableTLS", "unsafeSsl"})
"""Fields of the metadata that KEDA itself uses."""


@dataclass(frozen=True, slots=True)
class ScalingTrigger:
    """A queue and its scaling parameters. The broker checks their values."""

    queue: str
    token: str | None = field(default=None, repr=False)
    parameters: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> ScalingTrigger:
        """Raises InvalidRequest if the queue is missing or a field is unknown."""
        if not metadata.get("queue"):
            raise InvalidRequest("The trigger names no queue. Add `queue` to its metadata.", field="queue")
        unknown = sorted(metadata.keys() - {"queue", *PARAMETERS, *TOKENS} - KEDA_FIELDS)
        if unknown:
            raise InvalidRequest(
                f"The trigger has the unknown field {unknown[0]!r}. Known ones: queue, "
                f"{', '.join((*PARAMETERS, *TOKENS))}.",
                field=unknown[0],
            )
        token = next((metadata[name] for name in TOKENS if metadata.get(name)), None)
        parameters = {name: metadata[name] for name in PARAMETERS if metadata.get(name)}
        return cls(metadata["queue"], token, parameters)

    @property
    def path(self) -> str:
        return f"/api/v1/queues/{quote(self.queue, safe='')}/scaling"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}
