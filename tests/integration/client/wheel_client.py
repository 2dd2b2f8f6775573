"""A program that pushes, pops and acks one message with an installed client.

Usage: wheel_client.py BROKER_URL QUEUE
"""

from __future__ import annotations

import sys

import penstock
from penstock.client import SyncClient

url, queue = sys.argv[1:]
with SyncClient(url) as client:
    client.push(queue, {"greeting": "hi"})
    [message] = client.pop(queue)
    client.ack(message)
    print(penstock.__file__, message.data["greeting"], len(client.pop(queue)))
