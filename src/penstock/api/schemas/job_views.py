"""JSON of jobs on dead letters, messages and tasks."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.api.http.response import iso_or_none
from penstock.broker.durable_store import DeadLetterFilter, DeadLetterJob
from penstock.clock import iso


def job_to_json(job: DeadLetterJob) -> dict[str, object]:
    """Return the JSON of a job."""
    return {
        "id": str(job.id),
        "kind": job.kind,
        "subject": job.subject,
        "state": job.state,
        "filter": {
            **filter_to_json(job.selection, job.dead_letter_ids or job.task_ids),
            "taskState": job.task_state,
        },
        "reason": job.reason,
        "ratePerSecond": job.rate,
        "total": job.total,
        "totalIsExact": job.total_is_exact,
        "lookedAt": job.scanned,
        "changed": job.changed,
        "skipped": job.skipped,
        "sample": _sample_to_json(job),
        "note": _describe_note(job),
        "createdBy": job.created_by,
        "createdAt": iso(job.created_at),
        "startedAt": iso_or_none(job.started_at),
        "finishedAt": iso_or_none(job.finished_at),
    }


def _sample_to_json(job: DeadLetterJob) -> dict[str, object] | None:
    if job.sample_size is None:
        return None
    return {
        "size": job.sample_size,
        "share": job.sample_share,
        "timeoutSeconds": job.sample_timeout_s,
        "endsAt": iso_or_none(job.sample_ends_at),
        "requeued": job.sample_taken,
        "acked": job.sample_acked,
        "dead": job.sample_dead,
        "passed": job.sample_passed,
    }


def filter_to_json(selection: DeadLetterFilter, letter_ids: Sequence[int | str] | None) -> dict[str, object]:
    """Return the filter of a job, or the ids it selects."""
    return {
        "letterIds": [str(letter_id) for letter_id in letter_ids] if letter_ids else None,
        "queue": selection.queue,
        "consumerGroup": selection.group,
        "partition": selection.partition,
        "from": iso_or_none(selection.start),
        "to": iso_or_none(selection.end),
        "error": selection.error,
        "errorGroup": selection.error_key,
        "payload": selection.payload,
    }


def _describe_note(job: DeadLetterJob) -> str | None:
    """Return the note of a job; of a running job, it is what the job waits for: `reason queue`."""
    if job.note is None or job.state != "running":
        return job.note
    reason, _, queue = job.note.partition(" ")
    return {
        "queue_full": f"waits: queue {queue!r} has reached its maxSize",
        "sample_waiting": (
            f"waits for the sample: {job.sample_acked + job.sample_dead} of {job.sample_taken} finished"
        ),
        "operations_waiting": f"waits: pushes to queue {queue!r} that were accepted earlier come first",
    }.get(reason, job.note)
