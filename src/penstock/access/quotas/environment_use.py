"""What an environment stores, as last sampled, and what was pushed since."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.access.quotas.quota_definitions import PARTITIONS, QUEUES, STORED_BYTES, STORED_MESSAGES


@dataclass(slots=True)
class EnvironmentUse:
    """Queues, partitions, messages and bytes of an environment.

    The sampled numbers cover all brokers. `added_messages` and `added_bytes` are what this process admitted
    since; what others admitted since the last sample is unknown.
    """

    durable_queues: int = 0
    run_queues: int = 0
    tasks: int = 0
    partitions: int = 0
    messages: int = 0
    """Messages and tasks."""
    bytes: int = 0
    added_messages: int = 0
    added_bytes: int = 0
    has_byte_limit: bool = False
    """Whether bytes are sampled at all."""
    is_sampled: bool = False

    @property
    def stored_messages(self) -> int:
        return self.messages + self.added_messages

    @property
    def stored_bytes(self) -> int:
        return self.bytes + self.added_bytes

    def read_use(self, quota: str) -> float | None:
        """Return what is used of a quota; None for one that is not about storage, or before a sample."""
        if not self.is_sampled:
            return None
        uses = {
            QUEUES: self.durable_queues + self.run_queues,
            PARTITIONS: self.partitions,
            STORED_MESSAGES: self.stored_messages,
            STORED_BYTES: self.stored_bytes,
        }
        return uses.get(quota)
