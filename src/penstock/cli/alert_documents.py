"""The JSON documents of alerts that the broker returns."""

from __future__ import annotations

from typing import Any, TypedDict


class AlertChannelDocument(TypedDict):
    name: str
    kind: str
    enabled: bool
    target: str


class AlertRulePageDocument(TypedDict):
    rules: list[dict[str, Any]]


class AlertChannelPageDocument(TypedDict):
    channels: list[AlertChannelDocument]


class AlertNoticeDocument(TypedDict):
    id: str
    rule: str
    transition: str
    channel: str
    state: str
    attempts: int
    lastError: str | None
    createdAt: str


class AlertNoticePageDocument(TypedDict):
    notices: list[AlertNoticeDocument]


class CauseDocument(TypedDict):
    kind: str
    summary: str
    excluded: list[dict[str, str]]


class IncidentQueueDocument(TypedDict):
    queue: str
    firedAt: str
    resolvedAt: str | None
    summary: str


class IncidentNoteDocument(TypedDict):
    at: str
    author: str
    text: str


class IncidentDocument(TypedDict):
    id: str
    state: str
    rule: str | None
    ruleType: str | None
    severity: str
    openedAt: str
    acknowledgedAt: str | None
    acknowledgedBy: str | None
    resolvedAt: str | None
    resolution: str | None
    silenced: bool
    inhibitedBy: str | None
    cause: CauseDocument | None
    queueCount: int
    queues: list[IncidentQueueDocument]


class IncidentDetailsDocument(IncidentDocument):
    notes: list[IncidentNoteDocument]
    notices: list[AlertNoticeDocument]


class IncidentPageDocument(TypedDict):
    incidents: list[IncidentDocument]


class SilenceDocument(TypedDict):
    id: str
    state: str
    queue: str | None
    rule: str | None
    severity: str | None
    labels: dict[str, str]
    startsAt: str | None
    endsAt: str | None
    recurrence: dict[str, object] | None
    comment: str
    createdBy: str


class SilencePageDocument(TypedDict):
    silences: list[SilenceDocument]


class BacktestIncidentDocument(TypedDict):
    openedAt: str
    resolvedAt: str | None
    queues: list[dict[str, str]]
    queueCount: int
    peakText: str
    notified: bool
    notifiedAt: str | None
    heldBackBy: str | None


class BacktestSeriesDocument(TypedDict):
    stepSeconds: int
    values: list[float | None]


class BacktestResultDocument(TypedDict):
    threshold: float
    sentence: str
    incidents: list[BacktestIncidentDocument]


class BacktestSuggestionDocument(TypedDict):
    sentence: str
    test: BacktestResultDocument | None


class BacktestReplayDocument(TypedDict):
    rule: str
    openedAt: str
    resolvedAt: str | None
    sentence: str


BacktestSpanDocument = TypedDict("BacktestSpanDocument", {"from": str, "to": str, "reason": str})


class BacktestDocument(BacktestResultDocument):
    rule: str
    unit: str
    queues: int
    to: str
    unknown: list[BacktestSpanDocument]
    series: BacktestSeriesDocument
    suggestion: BacktestSuggestionDocument | None
    replay: BacktestReplayDocument | None
