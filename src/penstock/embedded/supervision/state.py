"""The state file `<home>/run/state.json`, which the supervisor writes and `penstock status` reads.

The supervisor replaces the file atomically, so a reader never sees half of it. Readers trust it only while
the supervisor that wrote it is alive.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path

import msgspec

from penstock.embedded.supervision.process_identity import ProcessIdentity


class RunState(StrEnum):
    """What a component is doing."""

    WAITING = "waiting"
    STARTING = "starting"
    UP = "up"
    UNRESPONSIVE = "not answering"
    DOWN = "down"
    STOPPING = "stopping"
    STOPPED = "stopped"


class ComponentState(msgspec.Struct, frozen=True, rename={"is_external": "yours"}):
    """One row of the component table. Times are seconds since the epoch."""

    name: str
    state: RunState
    address: str
    pid: int | None = None
    up_since: float | None = None
    restarts: int = 0
    last_failure: str | None = None
    last_failure_at: float | None = None
    is_external: bool = False
    """Whether the operator runs it; Penstock then neither starts nor stops it."""


class PlatformState(msgspec.Struct, frozen=True, rename={"written_at": "at", "components": "parts"}):
    """The state of all components, and where the platform runs."""

    supervisor: ProcessIdentity
    home: str
    url: str
    written_at: float
    started_at: float
    components: tuple[ComponentState, ...]
    settings: dict[str, object] = msgspec.field(default_factory=dict)
    """The settings of the platform by name, with secrets masked and the addresses of embedded servers."""

    @property
    def all_up(self) -> bool:
        return all(component.state is RunState.UP for component in self.components)

    def find_component(self, name: str) -> ComponentState | None:
        return next((component for component in self.components if component.name == name), None)


def state_path(home: Path) -> Path:
    return home / "run" / "state.json"


def write_state(home: Path, state: PlatformState) -> None:
    path = state_path(home)
    new_file = path.with_suffix(f".{os.getpid()}")
    new_file.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=1))
    new_file.replace(path)


def read_state(home: Path) -> PlatformState | None:
    """Return the state of the platform that runs on this home now, or None when none does."""
    try:
        state = msgspec.json.decode(state_path(home).read_bytes(), type=PlatformState)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return state if state.supervisor.is_alive else None
