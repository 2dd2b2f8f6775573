"""The Python client: push, pop, settle and consume, asynchronously or from plain threads.

It speaks HTTP to a broker and imports nothing else of Penstock, so it needs msgspec alone. The
asynchronous `Client` is the only implementation; `SyncClient` drives one on an event loop of its own.
"""

from penstock.client.buffer import Buffer
from penstock.client.client import Client
from penstock.client.consumer import Batches, Consumer
from penstock.client.errors import (
    ApiError,
    ClientError,
    FlushFailed,
    InvalidRequest,
    LeaseLost,
    NoAnswer,
    NotFound,
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
from penstock.client.pops import AnyQueue
from penstock.client.settings import ClientSettings
from penstock.client.sync import SyncBuffer, SyncClient, SyncConsumer, SyncTransaction
from penstock.client.transaction import Transaction

__all__ = [
    "AckResult",
    "AnyQueue",
    "ApiError",
    "Batches",
    "Buffer",
    "Client",
    "ClientError",
    "ClientSettings",
    "Consumer",
    "FlushFailed",
    "InvalidRequest",
    "LeaseLost",
    "Message",
    "NewMessage",
    "NoAnswer",
    "NotFound",
    "Overloaded",
    "PartlyFailed",
    "PushResult",
    "ServerFault",
    "SyncBuffer",
    "SyncClient",
    "SyncConsumer",
    "SyncTransaction",
    "Transaction",
    "TransactionFailed",
    "TransactionResult",
    "TransactionStep",
    "Unavailable",
    "WrongState",
]
