"""Annotations in PostgreSQL: events that charts of queues mark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock.durable.pool import Session, fetch_all, fetch_one, fetch_value
from penstock.model import Scope

MAX_ANNOTATIONS = 10_000
"""Annotations that an environment keeps; a further one replaces the oldest."""
ANNOTATIONS_PER_PRUNE = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAnnotation:
    """An annotation to add. `queue` None: the whole environment; `at` None: now; `end_at` None: a moment."""

    kind: str
    text: str
    subject: str
    queue: str | None = None
    at: datetime | None = None
    end_at: datetime | None = None
    link: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """An annotation, or an incident with the kind `incident`, which is `ongoing` until it is resolved."""

    id: str
    kind: str
    at: datetime
    end_at: datetime | None
    ongoing: bool
    queue: str | None
    text: str
    subject: str
    link: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedAnnotation(Annotation):
    """The annotation of a request; `is_new` is False if an earlier request with the same key added it."""

    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationFilter:
    """Which annotations to list: those of a queue and of the whole environment, between two times."""

    queue: str | None
    kind: str | None
    start: datetime
    end: datetime


class AnnotationStore:
    """Adds, lists and deletes annotations."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def add(
        self, scope: Scope, annotation: NewAnnotation, *, max_kept: int = MAX_ANNOTATIONS
    ) -> AddedAnnotation:
        """Add an annotation, or return the one that has its key."""
        added = await fetch_one(
            self._session,
            AddedAnnotation,
            "SELECT * FROM add_annotation_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
            *scope,
            annotation.at,
            annotation.end_at,
            annotation.kind,
            annotation.queue,
            annotation.text,
            annotation.subject,
            annotation.link,
            annotation.key,
            max_kept,
        )
        assert added is not None
        return added

    async def list_annotations(
        self, scope: Scope, annotation_filter: AnnotationFilter, *, limit: int
    ) -> list[Annotation]:
        """Return annotations and incidents, the latest first."""
        return await fetch_all(
            self._session,
            Annotation,
            "SELECT * FROM annotations_v1($1, $2, $3, $4, $5, $6, $7, $8)",
            *scope,
            annotation_filter.queue,
            annotation_filter.kind,
            annotation_filter.start,
            annotation_filter.end,
            limit,
        )

    async def find(self, scope: Scope, annotation_id: int) -> Annotation | None:
        """Return an annotation, or None."""
        return await fetch_one(
            self._session,
            Annotation,
            "SELECT * FROM find_annotation_v1($1, $2, $3, $4)",
            *scope,
            annotation_id,
        )

    async def delete(self, scope: Scope, annotation_id: int) -> bool:
        """Delete an annotation; whether it existed."""
        return await fetch_value(
            self._session, bool, "SELECT delete_annotation_v1($1, $2, $3, $4)", *scope, annotation_id
        )

    async def prune(self, before: datetime) -> bool:
        """Delete one batch of annotations that ended before a time; whether there may be more."""
        pruned = await fetch_value(
            self._session, int, "SELECT prune_annotations_v1($1, $2)", before, ANNOTATIONS_PER_PRUNE
        )
        return pruned >= ANNOTATIONS_PER_PRUNE
