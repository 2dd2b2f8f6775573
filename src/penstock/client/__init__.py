"""Python client: push, pop, ack, consume, enqueue and work, asynchronously or from threads.

It speaks HTTP to a broker, imports nothing else of Penstock, and depends on msgspec only. The asynchronous
`Client` is the only implementation; `SyncClient` runs one on an event loop in a thread.
"""

from penstock.client.buffer import Buffer
from penstock.client.client import Client
from penstock.client.consumer import Batches, Consumer
from penstock.client.deferred import Queued, Results
from penstock.client.errors import (
    AccessDenied,
    ApiError,
    ClientError,
    FlushFailed,
    InvalidRequest,
    LeaseLost,
    NoAnswer,
    NotFound,
    OperationFailed,
    OperationPending,
    Overloaded,
    PartlyFailed,
    ServerFault,
    TransactionFailed,
    Unavailable,
    WrongState,
)
from penstock.client.messages import (
    AckResult,
    Message,
    NewMessage,
    PushResult,
    TransactionResult,
    TransactionStep,
)
from penstock.client.operations import Operation, OperationPage, Operations, OperationStatus
from penstock.client.pop_request import AnyQueue
from penstock.client.settings import ClientSettings
from penstock.client.sync import (
    SyncBuffer,
    SyncClient,
    SyncConsumer,
    SyncOperations,
    SyncTasks,
    SyncTransaction,
    SyncWorker,
)
from penstock.client.task_types import (
    DeadTasks,
    EnqueuedTask,
    EnvironmentLimits,
    NewTask,
    RunQueue,
    Settled,
    Task,
    TaskResult,
    TaskStatus,
)
from penstock.client.tasks import Tasks
from penstock.client.transaction import Transaction
from penstock.client.worker import Worker

__all__ = [
    "AccessDenied",
    "AckResult",
    "AnyQueue",
    "ApiError",
    "Batches",
    "Buffer",
    "Client",
    "ClientError",
    "ClientSettings",
    "Consumer",
    "DeadTasks",
    "EnqueuedTask",
    "EnvironmentLimits",
    "FlushFailed",
    "InvalidRequest",
    "LeaseLost",
    "Message",
    "NewMessage",
    "NewTask",
    "NoAnswer",
    "NotFound",
    "Operation",
    "OperationFailed",
    "OperationPage",
    "OperationPending",
    "OperationStatus",
    "Operations",
    "Overloaded",
    "PartlyFailed",
    "PushResult",
    "Queued",
    "Results",
    "RunQueue",
    "ServerFault",
    "Settled",
    "SyncBuffer",
    "SyncClient",
    "SyncConsumer",
    "SyncOperations",
    "SyncTasks",
    "SyncTransaction",
    "SyncWorker",
    "Task",
    "TaskResult",
    "TaskStatus",
    "Tasks",
    "Transaction",
    "TransactionFailed",
    "TransactionResult",
    "TransactionStep",
    "Unavailable",
    "Worker",
    "WrongState",
]
