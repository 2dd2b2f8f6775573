"""What a check of `penstock doctor` says: ok, a warning or a problem, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from penstock.config import Settings
from penstock.embedded.supervision.state import PlatformState
from penstock.errors import PenstockError


class FindingLevel(StrEnum):
    """How bad it is. The exit code of `penstock doctor` follows the worst one."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One line: the subject, how it is, and for a warning or a problem what to do."""

    subject: str
    level: FindingLevel
    text: str

    def to_json(self) -> dict[str, str]:
        return {"check": self.subject, "level": self.level.value, "text": self.text}


@dataclass(frozen=True, slots=True)
class Installation:
    """What the checks look at: the settings of this shell, and the platform that runs with them, if any."""

    settings: Settings
    running: PlatformState | None

    @property
    def home(self) -> Path:
        return self.settings.home


Check = Callable[[Installation], Iterable[CheckFinding]]


def ok(subject: str, text: str) -> CheckFinding:
    return CheckFinding(subject, FindingLevel.OK, text)


def warning(subject: str, text: str) -> CheckFinding:
    return CheckFinding(subject, FindingLevel.WARNING, text)


def problem(subject: str, text: str) -> CheckFinding:
    return CheckFinding(subject, FindingLevel.PROBLEM, text)


def run_check(subject: str, check: Check, installation: Installation) -> Iterator[CheckFinding]:
    """Yield the findings of a check; an error of the check is a problem."""
    try:
        yield from check(installation)
    except PenstockError as error:
        yield problem(subject, error.detail)
    except OSError as error:
        yield problem(subject, f"The check failed: {error.strerror or error}.")
