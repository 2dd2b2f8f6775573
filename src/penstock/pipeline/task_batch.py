"""The batch that a task of a streaming query works for."""

from __future__ import annotations

from typing import NamedTuple

from pyspark import TaskContext

QUERY_ID_PROPERTY, BATCH_ID_PROPERTY = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties that Spark sets for the tasks of a streaming query."""


class TaskBatch(NamedTuple):
    """The id of the query, which belongs to its checkpoint, and the number of the batch."""

    query_id: str
    batch_id: int


def read_task_batch() -> TaskBatch:
    """Return the batch of the task that runs in this process."""
    context = TaskContext.get()
    query_id = context.getLocalProperty(QUERY_ID_PROPERTY) if context else None
    batch_id = context.getLocalProperty(BATCH_ID_PROPERTY) if context else None
    assert query_id, "Only tasks of a streaming query know their batch."
    assert batch_id, "Only tasks of a streaming query know their batch."
    return TaskBatch(query_id, int(batch_id))
