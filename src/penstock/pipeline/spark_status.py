"""Read what Spark executes at the moment: the tasks of running stages, the executors, the driver's heap.

The figures are those of Spark's web UI, which need not be enabled for them.
"""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext

from penstock.streams.progress import ExecutorStatus, SparkStatus, StageStatus

MAX_EXECUTORS = 50
"""Executors in a report. Each takes about ten calls to the driver's JVM."""


def read_spark_status(context: SparkContext) -> SparkStatus:
    """Raises the errors in `SPARK_ERRORS` when Spark does not answer."""
    gateway: Any = context
    runtime = gateway._jvm.java.lang.Runtime.getRuntime()
    return {
        "master": str(context.master),
        "cores": context.defaultParallelism,
        "heap_bytes": int(runtime.totalMemory() - runtime.freeMemory()),
        "heap_limit_bytes": int(runtime.maxMemory()),
        "stages": _read_stages(context),
        "executors": _read_executors(gateway._jsc.sc().statusStore()),
    }


def _read_stages(context: SparkContext) -> list[StageStatus]:
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage_id) for stage_id in tracker.getActiveStageIds()]
    return [
        {
            "stage": stage.stageId,
            "tasks": stage.numTasks,
            "active": stage.numActiveTasks,
            "completed": stage.numCompletedTasks,
            "failed": stage.numFailedTasks,
        }
        for stage in stages
        if stage is not None  # it ended between the two calls
    ]


def _read_executors(store: Any) -> list[ExecutorStatus]:
    summaries = store.executorList(True)
    return [
        {
            "id": str(summary.id()),
            "address": str(summary.hostPort()),
            "cores": int(summary.totalCores()),
            "active_tasks": int(summary.activeTasks()),
            "completed_tasks": int(summary.completedTasks()),
            "failed_tasks": int(summary.failedTasks()),
            "task_s": int(summary.totalDuration()) / 1000,
            "gc_s": int(summary.totalGCTime()) / 1000,
        }
        for summary in (summaries.apply(index) for index in range(min(summaries.size(), MAX_EXECUTORS)))
    ]
